# Kernel variants of the op module. src/op/ref/*.c is compiled for float and for double; src/op/cpu/*.c once per
# instruction set, chosen at run time. Each variant gets its own symbol suffix through KERNEL_SUFFIX.

# Reference: one variant per storage format. Tests compute most with it, so that the build for fuzzing leaves out what
# is checked at every access besides its address.
file(GLOB ref_sources CONFIGURE_DEPENDS src/op/ref/*.c)
foreach(storage f32 bf16 f16 f64)
    string(TOUPPER ${storage} STORAGE)
    add_library(op_ref_${storage} OBJECT ${ref_sources})
    target_compile_definitions(op_ref_${storage} PRIVATE KERNEL_SUFFIX=${storage} REF_${STORAGE}=1)
    target_link_libraries(op_ref_${storage} PRIVATE ath_flags)
    target_compile_options(op_ref_${storage} PRIVATE $<$<CONFIG:Release>:-O2>)
    if(ATHANOR_FUZZ)
        target_compile_options(op_ref_${storage} PRIVATE
            -fno-sanitize=alignment,null,object-size,pointer-overflow,fuzzer-no-link)
    endif()
    target_sources(ath_op PRIVATE $<TARGET_OBJECTS:op_ref_${storage}>)
endforeach()

# Tuned kernels: src/op/cpu/*.c once per instruction set (psABI levels; the last one adds bf16 products); which files a
# variant has: src/op/cpu/variant.h. -O3 in every build type: unoptimised vector code is too slow to test with. The
# largest files unroll their loops by hand and gain nothing over -O2, which compiles them in half the time. In the build
# for fuzzing only the address sanitizer sees them, and functions with over a thousand accesses check them by calls, which
# for a vector take long: fully instrumented, clang takes minutes for a file, since every option of a kernel is a loop of
# its own (the ubsan preset has them all).
# Inner loops begin on a cache line of code: else where the linker happens to put them decides 8 to 11 % of attention.
set(KERNEL_OPTIONS -O3 -falign-functions=64 -falign-loops=64)
if(ATHANOR_FUZZ)
    set(KERNEL_OPTIONS -O1 -fno-sanitize=undefined,fuzzer-no-link "SHELL:-mllvm -asan-instrumentation-with-call-threshold=1000")
else()
    foreach(f attention_bwd attention_fwd attention_one by_row delta delta_bwd page_attention gemm_tile gemv_stored stored stored_dot)
        set_source_files_properties(src/op/cpu/${f}.c PROPERTIES COMPILE_OPTIONS -O2)
    endforeach()
endif()
set(CPU_VARIANTS base)
file(GLOB cpu_sources CONFIGURE_DEPENDS src/op/cpu/*.c)
list(FILTER cpu_sources EXCLUDE REGEX "cpu/(stored_dot|gemm_amx)") # not of all variants
set(CPU_SOURCES_base ${cpu_sources})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND CPU_VARIANTS avx2 avx512 avx512_vnni avx512_bf16 amx)
    set(CPU_FLAGS_avx2 -march=x86-64-v3)
    set(CPU_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
    set(CPU_FLAGS_avx512_vnni ${CPU_FLAGS_avx512} -mavx512vnni)
    set(CPU_FLAGS_avx512_bf16 ${CPU_FLAGS_avx512} -mavx512bf16 -DCPU_ONLY_BF16)
    set(CPU_FLAGS_amx ${CPU_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16 -DCPU_ONLY_AMX)
    set(stored_dot ${CMAKE_SOURCE_DIR}/src/op/cpu/stored_dot.c)
    set(CPU_SOURCES_avx2 ${cpu_sources} ${stored_dot})
    set(CPU_SOURCES_avx512 ${cpu_sources} ${stored_dot})
    set(CPU_SOURCES_avx512_vnni ${stored_dot})
    set(CPU_SOURCES_avx512_bf16 ${cpu_sources})
    set(CPU_SOURCES_amx ${cpu_sources})
    list(FILTER CPU_SOURCES_amx INCLUDE REGEX "cpu/(attention|peak|tables)")
    list(APPEND CPU_SOURCES_amx ${CMAKE_SOURCE_DIR}/src/op/cpu/gemm_amx.c)
    list(FILTER CPU_SOURCES_avx512_bf16 EXCLUDE REGEX "cpu/(vec|update|fixed|stored|gemv_stored)")
    # Without AVX2 only products and whole arrays are tuned, to keep the build short. The build for
    # fuzzing has all of it, as processors other than x86 do: so these loops are tested, too.
    if(NOT ATHANOR_FUZZ)
        set(CPU_FLAGS_base -DCPU_ONLY_PRODUCTS)
        list(FILTER CPU_SOURCES_base INCLUDE REGEX "cpu/(tables|gemm|gemv|by_row|linear|head_ce|vec|update|peak)")
        list(FILTER CPU_SOURCES_base EXCLUDE REGEX "cpu/gemv_stored")
    endif()
endif()
foreach(v IN LISTS CPU_VARIANTS)
    add_library(ath_op_cpu_${v} OBJECT ${CPU_SOURCES_${v}})
    target_link_libraries(ath_op_cpu_${v} PRIVATE ath_flags)
    target_compile_definitions(ath_op_cpu_${v} PRIVATE CPU_VARIANT=${v})
    target_compile_options(ath_op_cpu_${v} PRIVATE ${KERNEL_OPTIONS} ${CPU_FLAGS_${v}})
    target_sources(ath_op PRIVATE $<TARGET_OBJECTS:ath_op_cpu_${v}>)
endforeach()

# Time and rate of every op at training shapes.
add_executable(bench_ops EXCLUDE_FROM_ALL bench/bench_ops.c)
target_link_libraries(bench_ops PRIVATE ${UPTO_op} ath_flags)

# tests/op/test_vmath.c looks into the headers of the kernels, so it is built once more per instruction
# set; on machines without it, ctest says "skipped".
if(CMOCKA_FOUND)
    foreach(v IN LISTS CPU_VARIANTS)
        if(NOT v MATCHES "^(base|avx512_vnni|amx)$")
            add_executable(test_op_vmath_${v} tests/op/test_vmath.c)
            target_link_libraries(test_op_vmath_${v} PRIVATE ${UPTO_op} ath_flags PkgConfig::CMOCKA)
            target_include_directories(test_op_vmath_${v} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
            target_compile_options(test_op_vmath_${v} PRIVATE -O3 ${CPU_FLAGS_${v}})
            add_test(NAME op_vmath_${v} COMMAND test_op_vmath_${v})
            set_tests_properties(op_vmath_${v} PROPERTIES SKIP_RETURN_CODE 77)
        endif()
    endforeach()
endif()
