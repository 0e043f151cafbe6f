# Compiler settings and the three functions every folder uses:
#   ek_add_folder(NAME [USES folder...] [LIBS target...])   src/NAME -> libek_NAME.a
#   ek_add_test(PATH [USES folder...] [LIBS target...])     tests/x/test_y.c -> ctest x/y
#   ek_add_fuzz(PATH USES folder...)                        tests/fuzz/fuzz_y.c -> fuzz_y

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
# Asserts stay on in every build: a broken invariant must stop, not answer.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")

set(EK_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")
option(EK_FUZZ "Build the libFuzzer targets (clang only)" OFF)

add_compile_definitions(_GNU_SOURCE EK_VERSION="${PROJECT_VERSION}"
    EK_IS_DEBUG=$<CONFIG:Debug>)
# Contraction would make a result depend on the compiler; kernels ask for FMA by name.
add_compile_options(-ffp-contract=off -fno-math-errno -fno-strict-aliasing
    -fstack-protector-strong -fvisibility=hidden)
add_compile_options(-Werror -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wcast-qual
    -Wwrite-strings -Wundef -Wformat=2 -Wvla -Wdouble-promotion
    -Wimplicit-fallthrough)
if(EK_SANITIZE)
    add_compile_options(-fsanitize=${EK_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${EK_SANITIZE})
endif()
if(EK_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# ISA flags belong to the files of kernel/avx2 and kernel/avx512 alone, so that one
# binary runs on any x86-64 and chooses its variants at start.
set(EK_AVX2_FLAGS -mavx2 -mfma -mf16c -mbmi2)
set(EK_AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
    -mavx512bf16 -mavx512vbmi -mfma -mf16c -mbmi2)
# No parser is in those files, and what the fuzzer counts in their unrolled loops costs
# the compiler minutes and gigabytes. The sanitizers see them in the preset asan.
if(EK_FUZZ)
    list(APPEND EK_AVX2_FLAGS -fno-sanitize=all)
    list(APPEND EK_AVX512_FLAGS -fno-sanitize=all)
endif()

function(ek_add_folder name)
    cmake_parse_arguments(A "" "" "USES;LIBS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.c
        ${PROJECT_SOURCE_DIR}/src/${name}/*/*.c)
    if(NOT sources)
        add_library(ek_${name} INTERFACE)
        return()
    endif()
    add_library(ek_${name} STATIC ${sources})
    set_target_properties(ek_${name} PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(ek_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    list(TRANSFORM A_USES PREPEND ek_)
    target_link_libraries(ek_${name} PUBLIC ${A_USES} ${A_LIBS})
    foreach(source ${sources})
        if(source MATCHES "/avx2/")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
                "-O3;${EK_AVX2_FLAGS}")
        elseif(source MATCHES "/avx512/")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
                "-O3;${EK_AVX512_FLAGS}")
        endif()
    endforeach()
endfunction()

# Where run.sh keeps the default model; tests that want it are skipped without it.
set(ek_cache $ENV{XDG_CACHE_HOME})
if(NOT ek_cache)
    set(ek_cache $ENV{HOME}/.cache)
endif()
string(APPEND ek_cache /evenkeel)
set(ek_default_model ${ek_cache}/models/SmolLM2-135M-Instruct.Q4_1.gguf)

function(ek_add_test path)
    cmake_parse_arguments(A "" "" "USES;LIBS;LABELS" ${ARGN})
    string(REGEX REPLACE "^(.*)/test_(.*)\\.c$" "\\1/\\2" label ${path})
    string(REPLACE "/" "_" target "test_${label}")
    add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path})
    list(TRANSFORM A_USES PREPEND ek_)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${target} PRIVATE ${A_USES} ${A_LIBS} PkgConfig::CMOCKA)
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_compile_definitions(${target} PRIVATE
        EK_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
    add_test(NAME ${label} COMMAND ${target})
    # 77 is how a test says that what it needs (a model, a package) is absent.
    set_tests_properties(${label} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800
        LABELS "${A_LABELS}" ENVIRONMENT "EK_MODEL=${ek_default_model}")
endfunction()

function(ek_add_fuzz path)
    cmake_parse_arguments(A "" "" "USES" ${ARGN})
    string(REGEX REPLACE "^.*/(fuzz_.*)\\.c$" "\\1" target ${path})
    list(TRANSFORM A_USES PREPEND ek_)
    add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path})
    target_link_libraries(${target} PRIVATE ${A_USES})
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    string(REGEX REPLACE "^fuzz_" "" short ${target})
    if(EK_FUZZ)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    else()
        # Without libFuzzer the target replays its kept corpus, so ctest does it always.
        target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
        add_test(NAME fuzz/${short} COMMAND ${target}
            ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${short})
    endif()
endfunction()

# ek_add_python_test(PATH [LABELS l...])                tests/x/check_y.py -> ctest x/y
# Runs with KEEL (the binary), EK_MODEL (the default model's place) and EK_DATA (real
# data, see tests/README.md) in the environment; exit 77 says that something is absent.
function(ek_add_python_test path)
    cmake_parse_arguments(A "" "" "LABELS" ${ARGN})
    string(REGEX REPLACE "^(.*)/check_(.*)\\.py$" "\\1/\\2" label ${path})
    set(python ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
    if(NOT EXISTS ${python})
        set(python python3)
    endif()
    set(data $ENV{EK_DATA})
    if(NOT data)
        set(data ${PROJECT_SOURCE_DIR}/../shared/data)
    endif()
    add_test(NAME ${label} COMMAND ${python} ${PROJECT_SOURCE_DIR}/tests/${path})
    set_tests_properties(${label} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3600
        LABELS "python;${A_LABELS}" ENVIRONMENT
        "KEEL=$<TARGET_FILE:keel>;EK_DATA=${data};EK_CACHE=${ek_cache};EK_MODEL=${ek_default_model};PYTHONPATH=${PROJECT_SOURCE_DIR}/tests;EK_BIN=${CMAKE_BINARY_DIR}")
endfunction()

# ek_add_probe(PATH)                  tests/x/probe_y.c -> ${CMAKE_BINARY_DIR}/tests/probe_y
# A small program by which a Python test asks a library for its answers.
function(ek_add_probe path)
    string(REGEX REPLACE "^(.*)/(probe_.*)\\.c$" "\\2" target ${path})
    string(REGEX REPLACE "^(.*)/(probe_.*)\\.c$" "\\1" folder ${path})
    add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path})
    target_link_libraries(${target} PRIVATE ek_${folder})
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()
