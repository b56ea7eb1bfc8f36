/* The chat page: one HTML file with its style and script, in the program (cmake/page.cmake joins it).
 *
 * It is served at GET / without an API key: the page asks for the key itself when /v1/models says 401. It asks
 * nothing but the origin it came from: /v1/models (id, max_model_len, meta.chat, meta.sampling), /v1/chat/completions
 * and, for models without a chat template, /v1/completions. It must be sent with these headers:
 *   Content-Type: text/html; charset=utf-8      Content-Security-Policy: chat_page_csp
 *   X-Content-Type-Options: nosniff             Referrer-Policy: no-referrer
 *   Cross-Origin-Opener-Policy: same-origin     Cache-Control: no-cache */
#ifndef SERVE_PAGE_PAGE_H
#define SERVE_PAGE_PAGE_H

#include <stddef.h>

extern const unsigned char chat_page[];
extern const size_t chat_page_bytes;

/* Names the page's style and script by their SHA-256: nothing else runs, nothing is loaded from elsewhere, no site
 * may frame the page, and no text can become markup (trusted types). */
extern const char chat_page_csp[];

#endif
