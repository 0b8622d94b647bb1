# SPDX-License-Identifier: LGPL-2.1-or-later
# Libraries from the distribution. Vendor libraries (libcuda, NVML) are never linked.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# gpucr_dependency(NAME pkg-config-name): imported as dep_NAME, static with GPUCR_PORTABLE.
function(gpucr_dependency name module)
    pkg_check_modules(${name} REQUIRED ${module})
    add_library(dep_${name} INTERFACE)
    target_include_directories(dep_${name} SYSTEM INTERFACE ${${name}_INCLUDE_DIRS})
    if(GPUCR_PORTABLE)
        find_library(${name}_static NAMES lib${${name}_LIBRARIES}.a
                     PATHS ${${name}_LIBRARY_DIRS} ${${name}_LIBDIR} REQUIRED)
        target_link_libraries(dep_${name} INTERFACE ${${name}_static})
    else()
        target_link_directories(dep_${name} INTERFACE ${${name}_LIBRARY_DIRS})
        target_link_libraries(dep_${name} INTERFACE ${${name}_LIBRARIES})
    endif()
endfunction()

gpucr_dependency(json json-c)
gpucr_dependency(xxhash libxxhash)
gpucr_dependency(protobufc libprotobuf-c)
pkg_check_modules(smartcols REQUIRED IMPORTED_TARGET smartcols)
find_program(PROTOC_C NAMES protoc-c REQUIRED)
