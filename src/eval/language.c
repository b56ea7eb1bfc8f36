/* Telling languages apart (see language.h). */
#include "eval/language.h"

#include <string.h>

#include "base/utf8.h"
#include "utf8proc.h"

typedef enum script {
    LATIN,
    CYRILLIC,
    ARABIC,
    DEVANAGARI,
    HAN,
    KANA,
    HANGUL,
    OF_ONE, /* the first script of one language only */
    SCRIPTS = OF_ONE + 12
} script;

/* Blocks of letters, and the language of those scripts that have one. */
static const struct {
    uint32_t first, last;
    script script;
    const char *language;
} blocks[] = {{'A', 'z', LATIN, NULL},
              {0xC0, 0x24F, LATIN, NULL},
              {0x1E00, 0x1EFF, LATIN, NULL},
              {0x400, 0x52F, CYRILLIC, NULL},
              {0x600, 0x6FF, ARABIC, NULL},
              {0x900, 0x97F, DEVANAGARI, NULL},
              {0x3400, 0x9FFF, HAN, "zh"},
              {0x3040, 0x30FF, KANA, "ja"},
              {0xAC00, 0xD7AF, HANGUL, "ko"},
              {0x370, 0x3FF, OF_ONE, "el"},
              {0x590, 0x5FF, OF_ONE + 1, "he"},
              {0x980, 0x9FF, OF_ONE + 2, "bn"},
              {0xA00, 0xA7F, OF_ONE + 3, "pa"},
              {0xA80, 0xAFF, OF_ONE + 4, "gu"},
              {0xB80, 0xBFF, OF_ONE + 5, "ta"},
              {0xC00, 0xC7F, OF_ONE + 6, "te"},
              {0xC80, 0xCFF, OF_ONE + 7, "kn"},
              {0xD00, 0xD7F, OF_ONE + 8, "ml"},
              {0xE00, 0xE7F, OF_ONE + 9, "th"},
              {0x530, 0x58F, OF_ONE + 10, "hy"},
              {0x10A0, 0x10FF, OF_ONE + 11, "ka"}};

/* Frequent words. Those that several languages have count for each of them. */
static const struct {
    const char *language;
    script script;
    const char *words;
} frequent[] = {
    {"en", LATIN,
     " the of and to in is that it was for on are with as his they be at have this from or by but "
     "not "
     "what all were when we there can an your which their if do will each how them then she many "
     "some so these would "
     "has more her two like him see time could no my than been who its now i you he "},
    {"es", LATIN,
     " de la que el en y a los del se las por un para con no una su al lo como más pero sus le ya "
     "o este sí "
     "porque esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos "
     "durante es son fue está "},
    {"pt", LATIN,
     " de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele "
     "das tem à seu "
     "sua ou ser quando muito há nos já está eu também só pelo pela até isso ela entre são você "},
    {"fr", LATIN,
     " de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il "
     "sont avec son "
     "mais comme ou nous vous je elle cette ces aux leur été l'on c'est d'un d'une très être "
     "fait "},
    {"de", LATIN,
     " der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an "
     "werden aus er "
     "hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur "
     "oder aber vor ich "},
    {"it", LATIN,
     " di e il la che in a per un è del non una le si con da i della sono come anche più al lo dei "
     "nel alla ma "
     "gli ha delle questo se o su ci mi era essere o dal tra molto perché quando suo io ho "},
    {"nl", LATIN,
     " de en van ik te dat die in een hij het niet zijn is was op aan met als voor had er maar om "
     "hem dan zou of "
     "wat mijn men dit zo door over ze zich bij ook tot je mij uit der daar haar naar heb hoe "
     "heeft "},
    {"pl", LATIN,
     " w i na z się do nie to że jest o a jak od po za dla przez ale czy co są tak jego które może "
     "już tym "
     "być było oraz ich ma tego też ten jej który pod "},
    {"vi", LATIN,
     " và của là có trong một được các cho không với những người này đã để khi tôi từ đó đến như "
     "về ra cũng nhiều "
     "nhưng bạn vào thì sẽ làm lại rất hơn ở "},
    {"sw", LATIN,
     " ya na wa kwa ni katika la za cha kama hii au yake watu ambayo kuwa pia hiyo si lakini wake "
     "kila vya hata "
     "mtu huo sana tu yao yangu kutoka moja baada wao ili hivyo wewe mimi yako "},
    {"fi", LATIN,
     " ja on ei se että oli hän mutta ovat kun niin myös kuin joka tai mitä olen sen jos voi vain "
     "ole minä "
     "hyvin siitä nyt jo sitä kanssa tämä ne olla sekä vielä sinä "},
    {"sv", LATIN,
     " och i att det som en på är av för med den till inte har de ett om var jag men han från så "
     "vi kan när "
     "eller du ska efter "},
    {"da", LATIN,
     " og i at det er en til af på som den med for de der ikke et har jeg var vi fra kan men han "
     "eller når du "
     "blev efter "},
    {"no", LATIN,
     " og i å det er en til av på som den med for de ikke et har jeg var vi fra kan men han eller "
     "når du ble "
     "etter "},
    {"ro", LATIN,
     " și de în a la cu pe nu este o că un care din pentru mai se sunt au fost sau ce dar prin "
     "această "},
    {"tr", LATIN,
     " ve bir bu da de için ile çok olarak daha gibi o ne ben var olan kadar sonra en her değil "
     "ama "},
    {"id", LATIN,
     " yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena tersebut "
     "bisa ada mereka "
     "lebih kami telah anda adalah "},
    {"hi", DEVANAGARI, " के में है की से का को और हैं यह पर ने कि एक भी था इस लिए तो ही हो जो नहीं कर वह "},
    {"mr", DEVANAGARI,
     " आहे आणि या व तो ती हे ते एक की आहेत होते नाही मध्ये करून साठी असे पण मी तुम्ही होता "},
    {"ne", DEVANAGARI, " र को छ मा यो पनि लागि भएको गर्न छन् हो त्यो एक का ले गरेको तर म तपाईं हुन्छ "},
};

static const char *find_word(const char *words, const char *w, size_t n) {
    for (const char *at = words; (at = memmem(at, strlen(at), w, n)); at++)
        if (at[-1] == ' ' && at[n] == ' ') return at;
    return NULL;
}

void eval_lower(eval_text s, strbuf *out) {
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        char lower[4];
        int n = utf8_decode(s.s + i, s.len - i, &cp);
        if (n == 0) {
            strbuf_putc(out, s.s[i++]);
            continue;
        }
        i += (size_t)n;
        n = utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), lower);
        strbuf_append(out, lower, (size_t)n);
    }
}

/* ---- letters ---- */

typedef struct letters {
    int64_t all, of[SCRIPTS];
    int64_t i_dot, yery, hard; /* Cyrillic: of Ukrainian; of Russian; of Bulgarian and Russian */
    int64_t persian, urdu;
} letters;

static void count_letter(letters *c, uint32_t cp) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    if (k < UTF8PROC_CATEGORY_LU || k > UTF8PROC_CATEGORY_LO) return;
    c->all++;
    for (int i = 0; i < ARRAY_LEN(blocks); i++)
        if (cp >= blocks[i].first && cp <= blocks[i].last) c->of[blocks[i].script]++;
    c->i_dot += cp == 0x456 || cp == 0x457 || cp == 0x454 || cp == 0x491;
    c->yery += cp == 0x44B || cp == 0x44D || cp == 0x451;
    c->hard += cp == 0x44A;
    c->persian +=
        cp == 0x67E || cp == 0x686 || cp == 0x698 || cp == 0x6AF || cp == 0x6A9 || cp == 0x6CC;
    c->urdu +=
        cp == 0x679 || cp == 0x688 || cp == 0x691 || cp == 0x6BA || cp == 0x6D2 || cp == 0x6BE;
}

static letters count_letters(eval_text s) {
    letters c = {0};
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int n = utf8_decode(s.s + i, s.len - i, &cp);
        if (n > 0) count_letter(&c, cp);
        i += n > 0 ? (size_t)n : 1;
    }
    return c;
}

/* ---- words ---- */

/* The language of the script whose frequent words the text has most; "" if it has none. The text is
 * in lower case. */
static const char *by_words(eval_text s, script k) {
    int64_t best = 0;
    const char *language = "";
    for (int i = 0; i < ARRAY_LEN(frequent); i++) {
        int64_t found = 0;
        if (frequent[i].script != k) continue;
        for (size_t at = 0, end; at < s.len; at = end + 1) {
            for (end = at; end < s.len && !strchr(" \t\n\r.,;:!?()\"[]*#-", s.s[end]);) end++;
            if (end > at) found += find_word(frequent[i].words, s.s + at, end - at) != NULL;
        }
        if (found > best) best = found, language = frequent[i].language;
    }
    return language;
}

static const char *of_cyrillic(const letters *c) {
    if (c->i_dot > c->yery) return "uk";
    return c->yery == 0 && c->hard > 0 ? "bg" : "ru";
}

static const char *of_arabic(const letters *c) {
    if (c->urdu > 0) return "ur";
    return c->persian > 0 ? "fa" : "ar";
}

static const char *tell(const letters *c, eval_text lower) {
    int best = 0;
    for (int i = 1; i < SCRIPTS; i++)
        if (c->of[i] > c->of[best]) best = i;
    if (c->of[KANA] > 0 && (best == HAN || best == KANA)) return "ja";
    if (best == CYRILLIC) return of_cyrillic(c);
    if (best == ARABIC) return of_arabic(c);
    for (int i = 0; i < ARRAY_LEN(blocks); i++)
        if ((int)blocks[i].script == best && blocks[i].language) return blocks[i].language;
    return by_words(lower, (script)best);
}

const char *eval_language_of(eval_text s) {
    strbuf lower = {0};
    eval_lower(s, &lower);
    eval_text l = {strbuf_cstr(&lower), lower.len};
    letters c = count_letters(l);
    const char *language = c.all ? tell(&c, l) : NULL;
    strbuf_free(&lower);
    return language;
}
