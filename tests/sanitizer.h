/* Whether a test runs under the address sanitizer, where code takes ten times as long. */
#ifndef TESTS_SANITIZER_H
#define TESTS_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#define UNDER_ASAN __has_feature(address_sanitizer)
#else
#define UNDER_ASAN 0
#endif

/* Seconds that a test leaves to what must not take for ever, on any machine. */
#define PATIENCE_S(normally) ((normally) * (UNDER_ASAN ? 20 : 4))

#endif
