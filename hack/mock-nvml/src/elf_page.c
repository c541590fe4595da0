/* An ELF header that makes the machine file a shared object to whoever looks. Layout: System V gABI. */
#include "elf_page.h"

#include <elf.h>
#include <string.h>

#include "state.h"

#if defined(__aarch64__)
#define MACHINE_TYPE EM_AARCH64
#else
#define MACHINE_TYPE EM_X86_64
#endif

static const char strings[] = "\0" STATE_PREFIX ".1";

struct page {
    Elf64_Ehdr header;
    Elf64_Phdr load, dynamic;
    Elf64_Dyn entries[6];
    Elf64_Sym symbol;
    char strings[sizeof(strings)];
};

void elf_page_write(uint8_t *page)
{
    struct page image = {
        .header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                   .e_type = ET_DYN, .e_machine = MACHINE_TYPE, .e_version = EV_CURRENT,
                   .e_phoff = offsetof(struct page, load), .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 2},
        .load = {.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = ELF_PAGE, .p_memsz = ELF_PAGE, .p_align = ELF_PAGE},
        .dynamic = {.p_type = PT_DYNAMIC, .p_flags = PF_R, .p_offset = offsetof(struct page, entries),
                    .p_vaddr = offsetof(struct page, entries), .p_filesz = sizeof(image.entries),
                    .p_memsz = sizeof(image.entries), .p_align = 8},
        .entries = {{DT_SONAME, {1}}, {DT_STRTAB, {offsetof(struct page, strings)}}, {DT_STRSZ, {sizeof(strings)}},
                    {DT_SYMTAB, {offsetof(struct page, symbol)}}, {DT_SYMENT, {sizeof(Elf64_Sym)}}, {DT_NULL, {0}}},
    };
    memcpy(image.strings, strings, sizeof(strings));
    memcpy(page, &image, sizeof(image));
}
