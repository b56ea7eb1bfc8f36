/* JSON Schema (draft 2020-12, and what OpenAPI adds) as rules of a network.
 *
 * Supported: type, enum, const, properties, required, additionalProperties, minProperties, maxProperties, items,
 * prefixItems, minItems, maxItems, uniqueItems (of up to one item), minLength, maxLength,
 * pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf (whole numbers), anyOf,
 * oneOf (of branches that exclude each other), allOf, $ref into the schema itself ("#", "#/..."), nullable.
 * Notes for people (title, description, default, examples, x-...) are passed over. Any other keyword, and
 * a combination that cannot be kept exactly, is refused by name: nothing is silently left out.
 *
 * What is written is one of the values that are valid, not any of them: properties come in the order of
 * the schema, those that are required but not described behind them, then others; numbers and white space are
 * bounded (json_rules.h). Limits of counts are kept, where a maximum above SCHEMA_MOST_COUNT counts as that.
 *
 * Schemas that apply to the same value ($ref beside other keywords, allOf, the branches of
 * anyOf) are kept as a list, and each list has one rule. So references may go round. */
#ifndef INFER_GRAMMAR_SCHEMA_H
#define INFER_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "base/status.h"
#include "infer/grammar/json_rules.h"

enum { SCHEMA_MOST_COUNT = 1 << 14, SCHEMA_MOST_DEPTH = 128 };

/* The rule of a value that is valid by the schema. ST_USAGE: what is wrong or not supported, by name;
 * `where` is its JSON pointer. That the network is full, or no value is valid, shows later. */
status schema_compile(json_rules *json, const json_t *root, int32_t *rule, err *e) ATH_MUST_USE;

#endif
