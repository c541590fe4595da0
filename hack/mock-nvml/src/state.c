/* Mapping, locking and waiting on the machine file. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "elf_page.h"

static bool map(struct machine_file *file, const char *path, int flags)
{
    file->writable = (flags & O_ACCMODE) == O_RDWR;
    file->descriptor = open(path, flags | O_CLOEXEC, 0644);
    if (file->descriptor < 0)
        return false;
    if ((flags & O_CREAT) && ftruncate(file->descriptor, sizeof(struct machine)) != 0)
        goto refused;
    if (lseek(file->descriptor, 0, SEEK_END) < (off_t)sizeof(struct machine))
        goto refused;
    int protection = file->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    file->machine = mmap(NULL, sizeof(struct machine), protection, MAP_SHARED, file->descriptor, 0);
    if (file->machine != MAP_FAILED)
        return true;
refused:
    close(file->descriptor);
    return false;
}

bool state_open(struct machine_file *file, const char *path)
{
    if (!map(file, path, O_RDWR) && !map(file, path, O_RDONLY))
        return false;
    const struct machine *machine = file->machine;
    if (machine->magic == STATE_MAGIC && machine->layout == STATE_LAYOUT && machine->size == sizeof(struct machine))
        return true;
    state_close(file);
    return false;
}

bool state_create(struct machine_file *file, const char *path)
{
    if (!map(file, path, O_RDWR | O_CREAT))
        return false;
    state_lock(file, true);
    memset(file->machine, 0, sizeof(struct machine));
    elf_page_write(file->machine->elf);
    file->machine->layout = STATE_LAYOUT;
    file->machine->size = sizeof(struct machine);
    file->machine->magic = STATE_MAGIC;
    state_unlock(file);
    return true;
}

void state_close(struct machine_file *file)
{
    munmap(file->machine, sizeof(struct machine));
    close(file->descriptor);
    file->machine = NULL;
}

void state_lock(const struct machine_file *file, bool exclusive)
{
    while (flock(file->descriptor, exclusive ? LOCK_EX : LOCK_SH) != 0 && errno == EINTR)
        continue;
}

void state_unlock(const struct machine_file *file)
{
    flock(file->descriptor, LOCK_UN);
}

void state_wait(const uint32_t *word, uint32_t seen, uint64_t milliseconds)
{
    struct timespec timeout = {.tv_sec = (time_t)(milliseconds / 1000), .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void state_wake(uint32_t *word)
{
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

uint64_t state_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
