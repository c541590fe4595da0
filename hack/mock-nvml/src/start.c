/*
 * Program entry that works with every glibc since its first version for the architecture. The C compiler's own crt1.o binds
 * __libc_start_main to the build machine's version (2.34 and later), and such a program does not start on an older base image.
 */
#if defined(__x86_64__)
__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5\n"
        ".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rdx, %r9\n"           /* rtld_fini */
        "    pop %rsi\n"                /* argc */
        "    mov %rsp, %rdx\n"          /* argv */
        "    and $-16, %rsp\n"
        "    push %rax\n"
        "    push %rsp\n"               /* stack_end */
        "    xor %r8d, %r8d\n"          /* fini */
        "    xor %ecx, %ecx\n"          /* init */
        "    lea main(%rip), %rdi\n"
        "    call *__libc_start_main@GOTPCREL(%rip)\n"
        "    hlt\n");
#elif defined(__aarch64__)
__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.17\n"
        ".globl _start\n"
        "_start:\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x5, x0\n"              /* rtld_fini */
        "    ldr x1, [sp]\n"            /* argc */
        "    add x2, sp, #8\n"          /* argv */
        "    mov x6, sp\n"              /* stack_end */
        "    adrp x0, main\n"
        "    add x0, x0, :lo12:main\n"
        "    mov x3, #0\n"
        "    mov x4, #0\n"
        "    bl __libc_start_main\n"
        "    brk #1\n");
#else
#error "x86_64 or aarch64 only"
#endif
