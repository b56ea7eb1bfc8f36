/* What a set of conversations is made of: counted while it is built, written beside it as chat.json. */
#ifndef DATA_CHAT_AUDIT_H
#define DATA_CHAT_AUDIT_H

#include "data/chat/checks.h"

typedef struct chat_audit chat_audit;

chat_audit *chat_audit_new(void);
void chat_audit_free(chat_audit *a); /* NULL is fine */
/* A record as it came: which of its columns are empty. `place` is "FILE:LINE". */
void chat_audit_record(chat_audit *a, const json_t *record, const char *place);
/* A sample and its documents. Those without tokens were left out. */
void chat_audit_sample(chat_audit *a, const chat_sample *s, const char *source, const char *place,
                       const chat_document *docs, int n);
/* The checks of the whole set; what is allowed is counted as those of one conversation are. */
status chat_audit_check(chat_audit *a, uint32_t allowed, err *e) ATH_MUST_USE;
/* {"samples", "documents", "tokens", "trained_tokens", "left_out", "lengths": {"p50", "p90", "p99", "max"},
 *  "sources": [{"path", "samples", "samples_share", "tokens", "tokens_share", "trained_tokens", "no_system"}],
 *  "roles": {ROLE: {"tokens", "tokens_share", "trained_tokens"}},
 *  "no_system", "thinking": {"think", "no_think", "paired_prompts"},
 *  "checks": [{"name", "count", "first"}]} */
json_t *chat_audit_json(chat_audit *a);

/* As templates and data name them: "template", "system", ... */
const char *chat_role_name(mark_role role);

#endif
