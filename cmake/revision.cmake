# The revision that the program is built from, for ledgers: OUT gets a header with it, which is touched only when it
# changes. Empty outside of a git checkout.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(revision "")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define ATHANOR_REVISION \"${revision}\"\n")
