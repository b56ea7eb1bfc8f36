# Kernels for CUDA devices: src/op/cuda/*.cu, once per storage format.
#
# The C compiler makes of each file the host's half and the kernels of the emulated device. These are compiled with the
# thread sanitizer's calls, but without its library: src/gpu/emulated/watch.c takes the calls. Line tables tell where a
# fault is. That needs nothing of CUDA.
#
# With ATHANOR_CUDA_ARCHS (make cuda) nvcc makes a fat binary of each file's device code, which lies in the program as an
# image; the driver loads it at run time, so that one program runs on machines with and without a GPU.
set(ATHANOR_CUDA_ARCHS "" CACHE STRING "compute capabilities, as 80;90a;100;120; empty: no code for real GPUs")

file(GLOB cuda_sources CONFIGURE_DEPENDS src/op/cuda/*.cu)
file(GLOB cuda_host_sources CONFIGURE_DEPENDS src/op/cuda/*.c)
target_sources(ath_op PRIVATE ${cuda_host_sources})
set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE C)
set(CUDA_WATCHED -fno-sanitize=all -fsanitize=thread)
if(CMAKE_C_COMPILER_ID MATCHES Clang) # it would leave out a read before a write of the same number
    list(APPEND CUDA_WATCHED "SHELL:-mllvm -tsan-instrument-read-before-write")
endif()
if(CMAKE_C_FLAGS MATCHES "sanitize=thread") # that build takes the calls itself
    set(CUDA_WATCHED "")
endif()

if(ATHANOR_CUDA_ARCHS)
    find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin REQUIRED)
    execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE nvcc_says COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "release ([0-9]+)" found "${nvcc_says}")
    set(cuda_major ${CMAKE_MATCH_1})
    set(NVCC_FLAGS -fatbin -O3 -std=c++17 -Werror all-warnings)
    foreach(arch IN LISTS ATHANOR_CUDA_ARCHS)
        list(APPEND NVCC_FLAGS -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
    string(REPLACE ";" " " archs "${ATHANOR_CUDA_ARCHS}")
    target_compile_definitions(ath_gpu PUBLIC GPU_HAS_KERNELS=1 GPU_CUDA_MAJOR=${cuda_major} "GPU_ARCHS=\"${archs}\"")
    file(GLOB cuda_headers CONFIGURE_DEPENDS src/gpu/*.h src/op/cuda/*.h src/op/clip.h src/op/narrow.h src/op/factored_rule.h src/op/pick.h
        src/op/exp_below.h         src/base/philox.h src/base/nf4.h src/base/nf4_tables.h)
endif()

# An image without data, or with the file's bytes.
set(images "#include \"gpu/gpu.h\"\n")
set(fatbins "")
function(add_image file storage)
    string(TOUPPER ${storage} STORAGE)
    set(image gpu_image_${file}_${storage})
    if(NOT ATHANOR_CUDA_ARCHS)
        string(APPEND images "const gpu_image ${image} = {\"${file}_${storage}\", 0};\n")
        set(images "${images}" PARENT_SCOPE)
        return()
    endif()
    set(fatbin ${CMAKE_BINARY_DIR}/cuda/${file}_${storage}.fatbin)
    add_custom_command(OUTPUT ${fatbin}
        COMMAND ${NVCC} ${NVCC_FLAGS} -DKERNEL_SUFFIX=${storage} -DCUDA_STORE_${STORAGE}=1
            -I${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/op/cuda/${file}.cu -o ${fatbin}
        DEPENDS ${CMAKE_SOURCE_DIR}/src/op/cuda/${file}.cu ${cuda_headers}
        COMMENT "nvcc ${file}.cu for ${storage}" VERBATIM)
    string(APPEND images "__asm__(\".pushsection .rodata\\n.balign 64\\n${image}_data: .incbin \\\"${fatbin}\\\"\\n.popsection\");\n"
        "extern const char ${image}_data[];\nconst gpu_image ${image} = {\"${file}_${storage}\", ${image}_data};\n")
    set(images "${images}" PARENT_SCOPE)
    set(fatbins ${fatbins} ${fatbin} PARENT_SCOPE)
endfunction()

set(CUDA_OF_FLOATS vecops factored pick) # these know no storage: compiled once, as f32
foreach(storage f32 bf16 f16)
    string(TOUPPER ${storage} STORAGE)
    foreach(source IN LISTS cuda_sources)
        get_filename_component(name ${source} NAME_WE)
        if(name IN_LIST CUDA_OF_FLOATS AND NOT storage STREQUAL f32)
            continue()
        endif()
        add_image(${name} ${storage})
        add_library(op_cuda_${name}_${storage} OBJECT ${source})
        target_link_libraries(op_cuda_${name}_${storage} PRIVATE ath_flags)
        target_compile_definitions(op_cuda_${name}_${storage} PRIVATE KERNEL_SUFFIX=${storage}
            CUDA_STORE_${STORAGE}=1 KERNEL_IMAGE=gpu_image_${name}_${storage})
        target_compile_options(op_cuda_${name}_${storage} PRIVATE -O1 -g1 ${CUDA_WATCHED})
        target_sources(ath_op PRIVATE $<TARGET_OBJECTS:op_cuda_${name}_${storage}>)
    endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gpu_images.c CONTENT "${images}" @ONLY)
set_source_files_properties(${CMAKE_BINARY_DIR}/gpu_images.c PROPERTIES OBJECT_DEPENDS "${fatbins}")
target_sources(ath_op PRIVATE ${CMAKE_BINARY_DIR}/gpu_images.c)

# The mistakes that the emulated device must find are compiled like the program's kernels.
if(CMOCKA_FOUND)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/gpu/planted.cu PROPERTIES LANGUAGE C)
    add_library(gpu_planted OBJECT ${CMAKE_SOURCE_DIR}/tests/gpu/planted.cu)
    target_link_libraries(gpu_planted PRIVATE ath_flags)
    target_include_directories(gpu_planted PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(gpu_planted PRIVATE KERNEL_SUFFIX=f32 KERNEL_IMAGE=gpu_image_planted)
    target_compile_options(gpu_planted PRIVATE -O1 -g1 ${CUDA_WATCHED})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gpu_planted_image.c
        CONTENT "#include \"gpu/gpu.h\"\nconst gpu_image gpu_image_planted = {\"planted\", 0};\n")
    set(GPU_PLANTED $<TARGET_OBJECTS:gpu_planted> ${CMAKE_BINARY_DIR}/gpu_planted_image.c)
endif()

# nvcc takes every kernel, and none spills; skipped where there is no nvcc.
add_test(NAME cuda_registers COMMAND ${CMAKE_SOURCE_DIR}/tools/cuda_registers.sh)
set_tests_properties(cuda_registers PROPERTIES SKIP_RETURN_CODE 77 LABELS slow)

# What gpu/lt.h says of cuBLASLt is compared with NVIDIA's header where there is one, here or in a toolkit:
# cmake -DCUBLAS_INCLUDE=FOLDER -DCUDART_INCLUDE=FOLDER
find_path(CUBLAS_INCLUDE cublasLt.h PATHS /usr/local/cuda/include)
find_path(CUDART_INCLUDE library_types.h PATHS /usr/local/cuda/include)
if(CUBLAS_INCLUDE AND CUDART_INCLUDE)
    add_library(cublas_facts OBJECT tests/gpu/cublas_facts.c)
    target_include_directories(cublas_facts SYSTEM PRIVATE ${CUBLAS_INCLUDE} ${CUDART_INCLUDE})
    target_link_libraries(cublas_facts PRIVATE ath_flags)
endif()

# The same of gpu/nccl.h: -DNCCL_INCLUDE=FOLDER -DCUDART_INCLUDE=FOLDER
find_path(NCCL_INCLUDE nccl.h PATHS /usr/local/cuda/include)
if(NCCL_INCLUDE AND CUDART_INCLUDE)
    add_library(nccl_facts OBJECT tests/gpu/nccl_facts.c)
    target_include_directories(nccl_facts SYSTEM PRIVATE ${NCCL_INCLUDE} ${CUDART_INCLUDE})
    target_link_libraries(nccl_facts PRIVATE ath_flags)
endif()

# Libraries that tests/gpu/test_lt.c opens in the place of cuBLASLt: one that serves, one that is too old, one without
# functions.
foreach(version 130002 110000 0)
    add_library(fake_lt_${version} SHARED tests/gpu/fake_lt.c)
    target_link_libraries(fake_lt_${version} PRIVATE ath_flags)
    target_compile_definitions(fake_lt_${version} PRIVATE FAKE_VERSION=${version})
    set_target_properties(fake_lt_${version} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME libcublasLt.so.13
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_lt/${version})
endforeach()

# What tests/gpu/test_driver.c opens in the place of NVIDIA's driver.
add_library(fake_driver SHARED tests/gpu/fake_driver.c)
target_link_libraries(fake_driver PRIVATE ath_flags)
set_target_properties(fake_driver PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME libcuda.so.1
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_driver)
