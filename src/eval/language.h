/* Which language a text is in, for rules that ask for one.
 *
 * The script of most letters tells most languages. Where several share a script, the letters that
 * only some of them have tell (Cyrillic, Arabic), or the most frequent words (Latin, Devanagari):
 * the language of whose words the text has most. This is not made for texts of a few words. */
#ifndef EVAL_LANGUAGE_H
#define EVAL_LANGUAGE_H

#include "eval/task.h"

/* The code of ISO 639-1 ("en"); "" if it cannot be told, NULL if the text has no letters. */
const char *eval_language_of(eval_text s);
/* The text in lower case, appended. */
void eval_lower(eval_text s, strbuf *out);

#endif
