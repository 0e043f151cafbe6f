# cmake -DNAME=ek_chat_files -DFOLDER=web -DPART=chat -DOUT=chat_files.c -P embed.cmake
# Writes the files of FOLDER, which all pages share, and of FOLDER/PART as the table NAME of
# src/net/static.h.
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_json "application/json")
set(type_svg "image/svg+xml")
set(type_png "image/png")
set(type_ico "image/x-icon")
set(type_webmanifest "application/manifest+json")

file(GLOB files ${FOLDER}/* ${FOLDER}/${PART}/*)
list(SORT files)
set(arrays "")
set(rows "")
set(i 0)
foreach(file ${files})
    if(IS_DIRECTORY ${file})
        continue()
    endif()
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "^.*\\." "" ending ${name})
    if(NOT DEFINED type_${ending})
        message(FATAL_ERROR "${file}: no content type known for .${ending}")
    endif()
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(APPEND arrays "static const unsigned char file_${i}[] = {${bytes}0};\n")
    string(APPEND rows
        "    {\"/${name}\", \"${type_${ending}}\", file_${i}, sizeof file_${i} - 1},\n")
    math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUT} "/* Generated from web/ by cmake/embed.cmake. */\n"
    "#include \"net/static.h\"\n\n${arrays}\n"
    "const struct ek_static_file ${NAME}[] = {\n${rows}    {0},\n};\n")
