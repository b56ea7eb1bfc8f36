#include "serve/page/page.h"

#include "chat_page.h" /* made by cmake/page.cmake */

__asm__(".pushsection .rodata\n"
        ".globl chat_page\n"
        "chat_page: .incbin \"" CHAT_PAGE_FILE "\"\n"
        ".popsection");

const size_t chat_page_bytes = CHAT_PAGE_BYTES;

const char chat_page_csp[] = CHAT_PAGE_CSP;
