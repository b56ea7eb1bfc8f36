# The chat page: page.html of src/serve/page with its style and scripts put in, as bytes in the program.
#
# The page lets run only what is in it: its Content-Security-Policy names style and script by their SHA-256, which are
# computed here. Run by `cmake -P` with SOURCE and OUT it joins the files; included, it says when.
cmake_minimum_required(VERSION 3.25)
set(PAGE_SCRIPTS dom api markdown store tokens settings turns main) # in this order

# The SHA-256 of a text as CSP wants it: base64 of its 32 bytes, which are 10 groups of three and one of two.
function(base64_sha256 text result)
    set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
    string(SHA256 hex "${text}")
    string(APPEND hex 00)
    set(encoded "")
    foreach(at RANGE 0 60 6)
        string(SUBSTRING ${hex} ${at} 6 group)
        foreach(shift 18 12 6 0)
            math(EXPR digit "(0x${group} >> ${shift}) & 63")
            string(SUBSTRING ${digits} ${digit} 1 letter)
            string(APPEND encoded ${letter})
        endforeach()
    endforeach()
    string(SUBSTRING ${encoded} 0 43 encoded)
    set(${result} "${encoded}=" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
    file(READ ${SOURCE}/page.html html)
    file(READ ${SOURCE}/page.css style)
    set(script "")
    foreach(name IN LISTS PAGE_SCRIPTS)
        file(READ ${SOURCE}/${name}.js part)
        string(APPEND script "${part}")
    endforeach()
    if("${style}${script}" MATCHES "</[sS][ct]") # would end the element it stands in
        message(FATAL_ERROR "a style or script of the chat page holds </script or </style")
    endif()
    base64_sha256("${style}" style_hash)
    base64_sha256("${script}" script_hash)
    string(REPLACE "@STYLE@" "${style}" html "${html}")
    string(REPLACE "@SCRIPT@" "${script}" html "${html}")
    file(WRITE ${OUT}/chat.html "${html}")
    file(SIZE ${OUT}/chat.html bytes)
    file(SHA256 ${OUT}/chat.html version)
    file(WRITE ${OUT}/chat_page.h "/* ${version} */\n#define CHAT_PAGE_FILE \"${OUT}/chat.html\"\n"
        "#define CHAT_PAGE_BYTES ${bytes}\n"
        "#define CHAT_PAGE_CSP \"default-src 'none'; script-src 'sha256-${script_hash}'; \" \\\n"
        "    \"style-src 'sha256-${style_hash}'; connect-src 'self'; img-src data:; base-uri 'none'; \" \\\n"
        "    \"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\"\n")
    return()
endif()

file(GLOB page_files CONFIGURE_DEPENDS src/serve/page/*.html src/serve/page/*.css src/serve/page/*.js)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/page/chat_page.h BYPRODUCTS ${CMAKE_BINARY_DIR}/page/chat.html
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR}/src/serve/page -DOUT=${CMAKE_BINARY_DIR}/page
            -P ${CMAKE_SOURCE_DIR}/cmake/page.cmake
    DEPENDS ${page_files} ${CMAKE_SOURCE_DIR}/cmake/page.cmake VERBATIM)
set_source_files_properties(src/serve/page/page.c PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_BINARY_DIR}/page
    OBJECT_DEPENDS ${CMAKE_BINARY_DIR}/page/chat_page.h)
