# SPDX-License-Identifier: LGPL-2.1-or-later
# gpucr_add_folder(FOLDER): add_subdirectory if it has a CMakeLists.txt.
macro(gpucr_add_folder folder)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
        add_subdirectory(${folder})
    endif()
endmacro()

# gpucr_layer(NAME SOURCES… ): object library of one layer, includes rooted at src/.
function(gpucr_layer name)
    add_library(gpucr_${name} OBJECT ${ARGN})
    target_include_directories(gpucr_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(gpucr_${name} PUBLIC gpucr_flags Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# gpucr_unit_test(NAME LABELS l… SOURCES f… [LIBS l…] [TIMEOUT s]): a cmocka program on the library's insides.
function(gpucr_unit_test name)
    cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
    if(NOT T_LABELS)
        set(T_LABELS unit)
    endif()
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 60)
    endif()
    add_executable(${name} ${T_SOURCES})
    target_link_libraries(${name} PRIVATE gpucr_internal cmocka ${T_LIBS})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
                         SKIP_RETURN_CODE 77)
endfunction()

# gpucr_script_test(NAME LABELS l… COMMAND c… [TIMEOUT s] [SERIAL]): a script as a test.
function(gpucr_script_test name)
    cmake_parse_arguments(T "SERIAL" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 120)
    endif()
    add_test(NAME ${name} COMMAND ${T_COMMAND})
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
                         SKIP_RETURN_CODE 77
                         ENVIRONMENT "GPUCR_BUILD=${CMAKE_BINARY_DIR};GPUCR_SOURCE=${CMAKE_SOURCE_DIR}")
    if(T_SERIAL)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
    endif()
endfunction()
