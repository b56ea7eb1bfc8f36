# Kernels for CUDA devices: src/op/cuda/*.cu, once per storage format. The C compiler makes of each the host's half and
# the kernels of the emulated device. These are compiled with the thread sanitizer's calls, but without its library:
# src/gpu/emulated/watch.c takes the calls. Line tables tell where a fault is.
file(GLOB cuda_sources CONFIGURE_DEPENDS src/op/cuda/*.cu)
file(GLOB cuda_host_sources CONFIGURE_DEPENDS src/op/cuda/*.c)
target_sources(ath_op PRIVATE ${cuda_host_sources})
set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE C)
set(CUDA_WATCHED -fno-sanitize=all -fsanitize=thread)
if(CMAKE_C_FLAGS MATCHES "sanitize=thread") # that build takes the calls itself
    set(CUDA_WATCHED "")
endif()
set(images "")
foreach(storage f32 bf16 f16)
    string(TOUPPER ${storage} STORAGE)
    foreach(source IN LISTS cuda_sources)
        get_filename_component(name ${source} NAME_WE)
        set(image gpu_image_${name}_${storage})
        string(APPEND images "const gpu_image ${image} = {\"${name}_${storage}\", 0};\n")
        add_library(op_cuda_${name}_${storage} OBJECT ${source})
        target_link_libraries(op_cuda_${name}_${storage} PRIVATE ath_flags)
        target_compile_definitions(op_cuda_${name}_${storage} PRIVATE KERNEL_SUFFIX=${storage}
            CUDA_STORE_${STORAGE}=1 KERNEL_IMAGE=${image})
        target_compile_options(op_cuda_${name}_${storage} PRIVATE -O1 -g1 ${CUDA_WATCHED})
        target_sources(ath_op PRIVATE $<TARGET_OBJECTS:op_cuda_${name}_${storage}>)
    endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/gpu_images.c CONTENT "#include \"gpu/gpu.h\"\n\n${images}")
target_sources(ath_op PRIVATE ${CMAKE_BINARY_DIR}/gpu_images.c)

# What gpu/lt.h says of cuBLASLt is compared with NVIDIA's header where there is one, here or in a toolkit:
# cmake -DCUBLAS_INCLUDE=FOLDER -DCUDART_INCLUDE=FOLDER
find_path(CUBLAS_INCLUDE cublasLt.h PATHS /usr/local/cuda/include)
find_path(CUDART_INCLUDE library_types.h PATHS /usr/local/cuda/include)
if(CUBLAS_INCLUDE AND CUDART_INCLUDE)
    add_library(cublas_facts OBJECT tests/gpu/cublas_facts.c)
    target_include_directories(cublas_facts SYSTEM PRIVATE ${CUBLAS_INCLUDE} ${CUDART_INCLUDE})
    target_link_libraries(cublas_facts PRIVATE ath_flags)
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
