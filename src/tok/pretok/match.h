/* The hand-written matchers that patterns.c lists; what each stands for is there. */
#ifndef TOK_PRETOK_MATCH_H
#define TOK_PRETOK_MATCH_H

#include "tok/pretok/pretok.h"

/* match.c */
pretok_end_fn match_cl100k_1_end, match_cl100k_2_end, match_cl100k_all_end, match_cl100k_plain_end;
pretok_end_fn match_tiktoken_end, match_tiktoken_all_end, match_qwen35_end;
/* match_case.c */
pretok_end_fn match_o200k_end, match_o200k_plain_end, match_o200k_1_end, match_kimi_end;
/* match_gaps.c */
pretok_find_fn match_deepseek_find, match_kana_find, match_bloom_find;
pretok_find_fn match_n_find, match_n_1_find, match_n_2_find, match_n_3_find;

#endif
