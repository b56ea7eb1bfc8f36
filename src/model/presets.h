/* Published shapes by name. Their parameter counts are the published ones (tests). */
#ifndef MODEL_PRESETS_H
#define MODEL_PRESETS_H

/* Lower case; models of one shape that differ in something else have two names. NULL past the end.
 */
const char *preset_name(int i);
/* That name of a preset which has others besides ("kimi-k2" of "kimi-k2-1t"); any other name is as it is. */
const char *preset_listed_name(const char *name);
/* An object for model_config_read: presets.c. NULL: no such preset. */
const char *preset_json(const char *name);
/* The preset whose name is most like it; NULL: none is. */
const char *preset_nearest(const char *name);

#endif
