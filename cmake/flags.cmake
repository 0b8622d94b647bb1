# SPDX-License-Identifier: LGPL-2.1-or-later
# Flags of the product's own code. sim/ does not link this: CRIU dumps its programs.
add_library(gpucr_flags INTERFACE)
target_compile_definitions(gpucr_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)
target_include_directories(gpucr_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)
target_compile_options(gpucr_flags INTERFACE
    -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla -Wformat=2 -Wundef
    -Wno-format-nonliteral -Wswitch-enum -Wimplicit-fallthrough -Wpointer-arith -Wwrite-strings
    -fno-common -fstack-protector-strong -fno-strict-aliasing)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(gpucr_flags INTERFACE
        -Wlogical-op -Wduplicated-cond -Wjump-misses-init
        -fstack-clash-protection)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(gpucr_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(GPUCR_WERROR)
    target_compile_options(gpucr_flags INTERFACE -Werror)
endif()
if(GPUCR_FAULTS)
    target_compile_definitions(gpucr_flags INTERFACE GPUCR_FAULTS)
endif()
if(GPUCR_SANITIZE)
    target_compile_options(gpucr_flags INTERFACE
        -fsanitize=${GPUCR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(gpucr_flags INTERFACE -fsanitize=${GPUCR_SANITIZE})
endif()
if(GPUCR_FUZZ)
    target_compile_options(gpucr_flags INTERFACE -fsanitize=fuzzer-no-link)
    target_link_options(gpucr_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_options(gpucr_flags INTERFACE -Wl,-z,relro,-z,now)
