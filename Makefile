# The front door; the build itself is CMakeLists.txt, its variants are in CMakePresets.json.

PACKAGES := build-essential cmake ninja-build pkg-config libdnnl-dev libyaml-dev libjansson-dev \
            libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libsnappy-dev libmicrohttpd-dev libcmocka-dev
# The corpus when no TEXT is given: fetched with curl, or else the text of bible-kjv.
CORPUS_PACKAGES := $(if $(TEXT),,curl ca-certificates bible-kjv)
TEST_PACKAGES := expect
MPI_PACKAGES := libopenmpi-dev openmpi-bin
CLUSTER_PACKAGES := slurm-wlm munge iproute2
SOURCES = $(shell find $(wildcard src include tests bench) -name '*.[ch]' -o -name '*.cu')

PREFIX ?= /usr/local

.PHONY: build install configure deps deps-test deps-mpi deps-cluster deps-cuda cuda deps-web web quickstart test bench format check clean help

build: configure ## build build/athanor (default)
	@cmake --build --preset release --target athanor

install: build ## copy the program to PREFIX (/usr/local): make install [PREFIX=$HOME/.local]
	@cmake --install build --prefix "$(abspath $(PREFIX))"

configure: deps
	@test -f build/build.ninja || cmake --preset release

deps: ## install the Debian packages that are missing
	@tools/deps.sh $(PACKAGES)

deps-test: deps
	@tools/deps.sh $(TEST_PACKAGES)

deps-mpi: ## install an MPI, for training on several machines; then build anew
	@tools/deps.sh $(MPI_PACKAGES)
	@rm -f build/build.ninja

deps-cluster: deps-mpi ## a Slurm too, for tests of several hosts
	@tools/deps.sh $(CLUSTER_PACKAGES)

CUDA_ARCHS ?= 80;90a;100;120
CUDA_LIBS := nvidia-cuda-runtime==13.0.* nvidia-cublas==13.0.2.14 nvidia-nccl-cu13==2.27.7 'nvidia-cuda-cuobjdump==13.*' 'nvidia-cuda-nvdisasm==13.*'
cuda: deps ## the same with kernels for GPUs, by nvcc: make cuda [CUDA_ARCHS="80;90a"]
	@cmake --preset release -DATHANOR_CUDA_ARCHS="$(CUDA_ARCHS)"
	@cmake --build --preset release --target athanor

deps-cuda: ## CUDA's libraries into build/cuda-libs, where there is no toolkit
	@tools/deps.sh python3-venv
	@test -d build/cuda-libs || python3 -m venv build/cuda-libs
	@build/cuda-libs/bin/pip install -q $(CUDA_LIBS)

# emscripten compiles; its optimiser asks for acorn, which Debian has as a package of node.
WEB_PACKAGES := emscripten node-acorn cmake ninja-build
deps-web: deps ## what `make web` needs: emscripten, and the sources of two libraries into build/web-deps
	@tools/deps.sh $(WEB_PACKAGES)
	@tools/deps_web.sh build/web-deps

web: deps-web ## the planner for browsers: build/web/plan.html, one file
	@emcmake cmake -S web -B build/web -G Ninja -DDEPS=$(CURDIR)/build/web-deps -DCMAKE_BUILD_TYPE=MinSizeRel >/dev/null
	@cmake --build build/web

quickstart: build ## text to a model that writes, in minutes: make quickstart [TEXT=my.txt]
	@tools/deps.sh $(CORPUS_PACKAGES)
	@build/athanor quickstart $(if $(TEXT),"$(TEXT)")

test: configure deps-test ## build and run every test
	@cmake --build --preset release
	@ctest --preset release

bench: configure ## time every op; bench/vs_pytorch.sh compares training with PyTorch
	@cmake --build --preset release --target bench_ops
	@build/bench_ops

format: ## rewrite the C sources in the house style
	@clang-format -i $(SOURCES)

check: ## the house style, the order of the modules, no large files
	@clang-format --dry-run -Werror $(SOURCES)
	@tools/check_layers.sh
	@if git ls-files -z | xargs -0 sh -c 'find "$$@" -size +1024k' sh | grep .; then \
		echo "these files are larger than 1 MiB: does git have to keep them for ever?" >&2; exit 1; fi

clean: ## remove everything built
	@rm -rf build

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
