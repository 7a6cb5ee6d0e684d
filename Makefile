# make build   crashproof, its runtime, its compiler (crashproof-cc, crashproof-c++) and crashproof-repair, side by side in target/release
# make demo    a program that forgets a flush, checked and crashed; then its fixed twin; then the program repaired by crashproof
# make check   a minute, for every edit: format, lints and unit tests of what needs neither LLVM nor a C compiler
# make test    everything that a change must pass: format, lints, documentation, all tests, the corpus
# make soak    hours if you let it: a clean Debian, malformed inputs, command lines compared, kills, fuzzing (SOAK_INPUTS, SOAK_KILLS, FUZZ_SECONDS)
# make fresh   make demo and make test in a clean Debian root (needs root and half an hour)
# make bench   the measurements that the README quotes
# make book    the book (docs/) as HTML in target/book; mdbook is compiled into target/tools if there is none
#
# The targets install apt packages that are missing (tools/deps.sh says which); `make check` needs none.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
CRASHPROOF := $(TARGET)/release/crashproof
DEMO := $(TARGET)/demo

.PHONY: build demo check test bench soak fresh fuzz book build-deps test-deps

build: build-deps
	$(CARGO) build --release -p crashproof -p crashproof-runtime -p crashproof-compiler -p crashproof-repair
	@ln -sf crashproof-cc $(TARGET)/release/crashproof-c++
	@echo "built $(CRASHPROOF), $(CRASHPROOF)-cc, $(CRASHPROOF)-c++, $(CRASHPROOF)-repair and $(TARGET)/release/libcrashproof_runtime.so"

demo: build
	@mkdir -p $(DEMO)
	@for program in event_log event_log_fixed verify_log; do \
	    gcc -g -O1 -Wall -mclwb -o $(DEMO)/$$program examples/demo/$$program.c || exit 2; \
	done
	@for program in event_log event_log_fixed; do \
	    case $$program in event_log) expected=1;; *) expected=0;; esac; \
	    echo; echo "\$$ crashproof check -- $(DEMO)/$$program $(DEMO)/events.log"; \
	    $(CRASHPROOF) check -- $(DEMO)/$$program $(DEMO)/events.log; status=$$?; \
	    echo "(exit status $$status)"; test $$status -eq $$expected || exit 1; \
	    rm -f $(DEMO)/events.log; \
	    echo; echo "\$$ crashproof crash --recover '$(DEMO)/verify_log $(DEMO)/events.log' -- $(DEMO)/$$program $(DEMO)/events.log"; \
	    $(CRASHPROOF) crash --save $(DEMO)/crashes --recover '$(DEMO)/verify_log $(DEMO)/events.log' \
	        -- $(DEMO)/$$program $(DEMO)/events.log; status=$$?; \
	    echo "(exit status $$status)"; test $$status -eq $$expected || exit 1; \
	done
	@echo; echo "\$$ crashproof repair --source examples/demo --build '\$$CC -g -O1 -mclwb -o event_log event_log.c' -- ./event_log events.log"
	@$(CRASHPROOF) repair --source examples/demo --build '$$CC -g -O1 -mclwb -o event_log event_log.c' -- ./event_log events.log; status=$$?; \
	    echo "(exit status $$status)"; test $$status -eq 0

# Tests are built once, in the profile `quick`: it compiles in two thirds of the time of `release`.
TEST_PROFILE ?= quick
# Continuous integration builds each crate once, so that what makes the next build faster is only slower there.
TESTING := CARGO_INCREMENTAL=$(if $(CI),0,1) $(CARGO)

# Crates whose unit tests need nothing but Rust.
PURE := base wire library trace model finding render tables stacks instruction litmus check infer exchange crash

check:
	$(CARGO) fmt --all --check
	$(TESTING) clippy --profile $(TEST_PROFILE) $(PURE:%=-p crashproof-%) --lib --tests -- -D warnings
	$(TESTING) test --profile $(TEST_PROFILE) $(PURE:%=-p crashproof-%) --lib
	@echo "make check: passed; make test runs everything"

# The first build is of the programs, too: tests run those of other packages.
test: test-deps
	$(CARGO) fmt --all --check
	$(TESTING) clippy --profile $(TEST_PROFILE) --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(TESTING) doc --profile $(TEST_PROFILE) --workspace --no-deps --document-private-items --quiet
	$(TESTING) build --profile $(TEST_PROFILE) --workspace --all-targets
	CRASHPROOF_BUILT=1 $(TESTING) test --profile $(TEST_PROFILE) --workspace --no-fail-fast
	@echo "make test: everything passed"

bench: test-deps build
	$(CARGO) run --release -p crashproof-bench

# A million inputs for each of nine parsers take about an hour on one core.
SOAK_INPUTS ?= 1000000
SOAK_KILLS ?= 80
SOAK_SEED ?= 1
soak: test-deps build fresh
	$(CARGO) build --release -p crashproof-soak
	$(TARGET)/release/crashproof-soak commands $(abspath $(CRASHPROOF))
	$(TARGET)/release/crashproof-soak kills $(abspath $(CRASHPROOF)) $(SOAK_KILLS) --seed $(SOAK_SEED)
	$(CARGO) test --release -p crashproof-sandbox --test sandbox
	$(TARGET)/release/crashproof-soak inputs $(SOAK_INPUTS) --seed $(SOAK_SEED)
	$(MAKE) fuzz

fresh:
	tools/fresh.sh $(abspath $(TARGET))/fresh

# Guided by coverage: libFuzzer on each parser for so many seconds. What it finds stays in target/fuzz.
FUZZ_SECONDS ?= 300
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing
FUZZ := $(abspath $(TARGET))/fuzz
fuzz: test-deps
	$(CARGO) build --release -p crashproof-soak
	RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --release --manifest-path soak/fuzz/Cargo.toml --target x86_64-unknown-linux-gnu --target-dir $(FUZZ)/build
	@for target in `$(TARGET)/release/crashproof-soak targets`; do \
	    mkdir -p $(FUZZ)/$$target; $(TARGET)/release/crashproof-soak seeds $$target $(FUZZ)/$$target || exit 2; \
	    echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	    CRASHPROOF_FUZZ=$$target $(FUZZ)/build/x86_64-unknown-linux-gnu/release/crashproof-fuzz $(FUZZ)/$$target -max_total_time=$(FUZZ_SECONDS) \
	        -timeout=20 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 -verbosity=0 -artifact_prefix=$(FUZZ)/$$target- || exit 1; \
	done

# Not part of `make test`: compiling mdbook takes minutes. crates/cli/tests/commands/book.rs tests the pages and their links without it.
MDBOOK ?= $(or $(shell command -v mdbook),$(abspath $(TARGET))/tools/bin/mdbook)
book:
	@test -x "$(MDBOOK)" || { echo "there is no mdbook: it is compiled into $(TARGET)/tools, which takes some minutes"; \
	    $(CARGO) install mdbook --locked --no-default-features --features search --root $(abspath $(TARGET))/tools; }
	$(MDBOOK) build docs --dest-dir $(abspath $(TARGET))/book
	@echo "open $(TARGET)/book/index.html"

build-deps:
	@tools/deps.sh build

test-deps:
	@tools/deps.sh test
