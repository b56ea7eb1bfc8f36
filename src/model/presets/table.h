/* The tables of presets, one for each lineage. A preset is an object for model_config_read, with
 * the keys of its family's config.json and options beside them (init_scheme). What all models of a
 * family have (norms, biases, activation, the pattern of layers) is not repeated, so that another
 * number of layers goes through. */
#ifndef MODEL_PRESETS_TABLE_H
#define MODEL_PRESETS_TABLE_H

typedef struct preset {
    const char *name, *json;
} preset;

/* Ends with a row without a name. */
extern const preset presets_gpt[], presets_llama[], presets_small[], presets_olmo[], presets_qwen[],
    presets_gemma[];

/* The object as text. Its members are written as in JSON; parameters of a macro around it are put
 * in. */
#define PRESET_JSON(...) #__VA_ARGS__

#endif
