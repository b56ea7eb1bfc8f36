/* The text for comparing tokenizers where no other is given. */
#include "tok/tok_edit.h"

const char tok_probe_text[] =
    "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.\n"
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Tous les êtres humains "
    "naissent libres et égaux. Todos los seres humanos nacen libres e iguales.\n"
    "Все люди рождаются свободными и равными в своём достоинстве и правах. Όλοι οι άνθρωποι "
    "γεννιούνται ελεύθεροι. Tất cả mọi người sinh ra đều được tự do.\n"
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. כל בני האדם נולדו בני חורין.\n"
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। "
    "মানুষ স্বাধীনভাবে জন্মগ্রহণ করে। மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.\n"
    "人人生而自由,在尊严和权利上一律平等。すべての人間は、生まれながらにして自由である。"
    "모든 인간은 태어날 때부터 자유롭다. มนุษย์ทั้งหลายเกิดมามีอิสระ\n"
    "int main(void) {\n    for (int i = 0; i < 42; i++)\n        printf(\"%d\\n\", i * 1234567);\n"
    "    return 0;\n}\n"
    "def f(x):\n\treturn [y ** 2 for y in x if y != 3.14159]  # e-mail: a@b.example\n"
    "\xf0\x9f\x98\x80 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 2026-11-21 10:30 \xe2\x82\xac"
    "1,999.00   \n\n\n";
