#ifndef MOCK_NVML_ELF_PAGE_H
#define MOCK_NVML_ELF_PAGE_H

#include <stdint.h>

/* Fill the first page of the machine file with the header of a shared object that has a SONAME and nothing else. */
void elf_page_write(uint8_t *page);

#endif
