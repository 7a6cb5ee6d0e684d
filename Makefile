# make build   crashproof, its runtime, its compiler (crashproof-cc, crashproof-c++) and crashproof-repair, side by side in target/release
# make demo    a program that forgets a flush, checked and crashed; then its fixed twin; then the program repaired by crashproof
# make test    everything: formatting, lints, tests, corpus
# make bench   the measurements that the README quotes
# make book    the book (docs/) as HTML in target/book; mdbook is compiled into target/tools if there is none
#
# The targets install apt packages that are missing (tools/deps.sh says which).

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
CRASHPROOF := $(TARGET)/release/crashproof
DEMO := $(TARGET)/demo

.PHONY: build demo test bench book build-deps test-deps

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

# `cargo build` first: it puts the runtime that the tests preload beside the binary that they run.
test: test-deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) build --release --workspace
	$(CARGO) test --release --workspace --no-fail-fast
	@echo "make test: everything passed"

bench: test-deps build
	$(CARGO) run --release -p crashproof-bench

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
