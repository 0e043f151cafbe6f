# cmake -DFOLDER=web -DOUT=static_files.c -P embed.cmake
# Writes the files of FOLDER as the table of src/serve/static.h.
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_json "application/json")
set(type_svg "image/svg+xml")
set(type_png "image/png")
set(type_ico "image/x-icon")
set(type_webmanifest "application/manifest+json")

file(GLOB files RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT files)
set(arrays "")
set(rows "")
set(i 0)
foreach(name ${files})
    if(IS_DIRECTORY ${FOLDER}/${name})
        continue()
    endif()
    string(REGEX REPLACE "^.*\\." "" ending ${name})
    if(NOT DEFINED type_${ending})
        message(FATAL_ERROR "web/${name}: no content type known for .${ending}")
    endif()
    file(READ ${FOLDER}/${name} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND arrays "static const unsigned char file_${i}[] = {${bytes}0};\n")
    string(APPEND rows
        "    {\"/${name}\", \"${type_${ending}}\", file_${i}, sizeof file_${i} - 1},\n")
    math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUT} "/* Generated from web/ by cmake/embed.cmake. */\n"
    "#include \"serve/static.h\"\n\n${arrays}\n"
    "const struct ek_static_file ek_static_files[] = {\n${rows}    {0},\n};\n")
