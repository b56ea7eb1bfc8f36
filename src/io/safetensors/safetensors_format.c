/* The table of element formats of safetensors files. */
#include "io/safetensors/safetensors_format.h"

#include "base/status.h"

static const st_format formats[] = {
    {"F32", 32, DT_F32},
    {"BF16", 16, DT_BF16},
    {"F16", 16, DT_F16},
    {"F64", 64, DT_F64},
    {"I32", 32, DT_I32},
    {"I64", 64, DT_I64},
    {"U8", 8, DT_U8},
    {"BOOL", 8, DT_COUNT},
    {"I8", 8, DT_COUNT},
    {"I16", 16, DT_COUNT},
    {"U16", 16, DT_COUNT},
    {"U32", 32, DT_COUNT},
    {"U64", 64, DT_COUNT},
    {"C64", 64, DT_COUNT},
    {"F8_E5M2", 8, DT_COUNT},
    {"F8_E4M3", 8, DT_COUNT},
    {"F8_E8M0", 8, DT_COUNT},
    {"F8_E5M2FNUZ", 8, DT_COUNT},
    {"F8_E4M3FNUZ", 8, DT_COUNT},
    {"F6_E2M3", 6, DT_COUNT},
    {"F6_E3M2", 6, DT_COUNT},
    {"F4", 4, DT_COUNT},
};

const st_format *st_format_by_name(const char *name) {
    for (int i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const st_format *st_format_by_dtype(dtype dt) {
    CHECK(dt < DT_COUNT, "no such dtype: %d", (int)dt);
    for (int i = 0; i < ARRAY_LEN(formats); i++)
        if (formats[i].dt == dt) return &formats[i];
    CHECK(false, "dtype %d has no safetensors name", (int)dt);
    return NULL;
}
