#include "model/presets.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "model/presets/table.h"

static const preset *const tables[] = {presets_gpt,  presets_llama, presets_small,
                                       presets_olmo, presets_qwen,  presets_gemma};

static const preset *preset_at(int i) {
    for (int t = 0; t < ARRAY_LEN(tables); t++)
        for (const preset *p = tables[t]; p->name; p++)
            if (i-- == 0) return p;
    return NULL;
}

const char *preset_name(int i) {
    const preset *p = preset_at(i);
    return p ? p->name : NULL;
}

/* A space stands for a hyphen. */
static bool same_name(const char *name, const char *given) {
    while (*name && (*name == *given || (*name == '-' && *given == ' '))) name++, given++;
    return *name == *given;
}

const char *preset_json(const char *name) {
    for (int i = 0; preset_at(i); i++)
        if (same_name(preset_at(i)->name, name)) return preset_at(i)->json;
    return NULL;
}

const char *preset_nearest(const char *name) {
    const char *names[256];
    int n = 0;
    while (n < ARRAY_LEN(names) && preset_name(n)) names[n] = preset_name(n), n++;
    int near = text_nearest(name, names, n);
    return near >= 0 ? names[near] : NULL;
}
