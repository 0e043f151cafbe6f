# libevenkeel: the session tracker as other people's programs link it. Both forms hold
# src/session and what it needs of src/base, and export what include/evenkeel/session.h
# declares and nothing else.
set(EK_LIBRARY_ABI 1)          # of the shared library; a break would be 2
set(EK_LIBRARY_VERSION 1.0.0)

file(GLOB library_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/session/*.c)
foreach(unit clock mem proc slots status)
    list(APPEND library_sources ${PROJECT_SOURCE_DIR}/src/base/${unit}.c)
endforeach()
add_library(evenkeel_objects OBJECT ${library_sources})
set_target_properties(evenkeel_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(evenkeel_objects PRIVATE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/include)

add_library(evenkeel_shared SHARED $<TARGET_OBJECTS:evenkeel_objects>)
set_target_properties(evenkeel_shared PROPERTIES OUTPUT_NAME evenkeel
    LINKER_LANGUAGE C VERSION ${EK_LIBRARY_VERSION} SOVERSION ${EK_LIBRARY_ABI}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/libevenkeel.map)
target_link_options(evenkeel_shared PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libevenkeel.map)
if(NOT EK_SANITIZE)
    target_link_options(evenkeel_shared PRIVATE -Wl,-z,defs)
endif()
target_link_libraries(evenkeel_shared PRIVATE Threads::Threads m)

# An archive cannot hide what its members share, so they are linked into one object
# whose hidden symbols become local.
set(merged ${CMAKE_BINARY_DIR}/libevenkeel.o)
add_custom_command(OUTPUT ${merged}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${merged}
        $<TARGET_OBJECTS:evenkeel_objects>
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${merged}
    DEPENDS evenkeel_objects $<TARGET_OBJECTS:evenkeel_objects>
    COMMAND_EXPAND_LISTS COMMENT "Linking libevenkeel.o" VERBATIM)
add_library(evenkeel_static STATIC ${merged})
set_target_properties(evenkeel_static PROPERTIES OUTPUT_NAME evenkeel
    LINKER_LANGUAGE C)

# Relative, so that the folder may be moved and --prefix may differ.
file(RELATIVE_PATH prefix_of_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix_of_pc "${prefix_of_pc}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/evenkeel.pc.in
    ${CMAKE_BINARY_DIR}/evenkeel.pc @ONLY)

# `cmake --install BUILD --component libevenkeel` installs this alone.
install(TARGETS evenkeel_shared
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libevenkeel)
install(TARGETS evenkeel_static
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libevenkeel)
install(FILES ${PROJECT_SOURCE_DIR}/include/evenkeel/session.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/evenkeel COMPONENT libevenkeel)
install(FILES ${CMAKE_BINARY_DIR}/evenkeel.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libevenkeel)
