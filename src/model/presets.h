/* Published shapes by name. */
#ifndef MODEL_PRESETS_H
#define MODEL_PRESETS_H

const char *preset_name(int i);            /* NULL past the end */
const char *preset_json(const char *name); /* a config.json object; NULL: no such preset */

#endif
