//! Random small programs in C: operations on an array in PM, with variables, arrays in volatile memory, branches, loops, calls and copies.

use std::fmt::Write;

/// Words in the array in PM.
pub(crate) const WORDS: u64 = 32;
/// How often each operation is called.
pub(crate) const CALLS: u64 = 3;

/// What PM holds at first.
pub(crate) fn initial(word: u64) -> u64 {
    word * 7 % 11
}

pub(crate) struct Generator {
    state: u64,
    text: String,
    depth: usize,
    loops: usize,
    statements: usize,
    /// Functions that may be called here: those before.
    callable: usize,
    /// What the function has pointers to, besides `ram` and `local`.
    pointer: &'static str,
}

const PRELUDE: &str = "#include <fcntl.h>\n#include <stdint.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
    typedef uint64_t word;\nword ram[8];\n";

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            text: String::new(),
            depth: 0,
            loops: 0,
            statements: 0,
            callable: 0,
            pointer: "pm",
        }
    }

    /// A program with so many operations, `operation0` and so on.
    pub(crate) fn program(mut self, operations: usize) -> String {
        self.text.push_str(PRELUDE);
        for number in 0..operations {
            if number % 2 == 0 {
                let _ = writeln!(
                    self.text,
                    "__attribute__((noinline)) static word help{number}(word *p, word a, word b) {{"
                );
                self.pointer = "p";
                self.body();
                self.callable = number + 1;
            }
            let _ = writeln!(
                self.text,
                "__attribute__((noinline)) word operation{number}(word *pm, word a, word b) {{"
            );
            self.pointer = "pm";
            self.body();
        }
        self.text.push_str(
            "int main(int c, char **v) {\nint fd = open(v[1], O_RDWR | O_CREAT, 0600);\nif (ftruncate(fd, 4096)) return 1;\n\
             word *pm = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);\nword x = 0;\n",
        );
        let _ = writeln!(
            self.text,
            "for (word i = 0; i < {WORDS}; i++) pm[i] = i * 7 % 11;\nif (write(1, \"\\n\", 1) != 1) return 1;"
        );
        for call in 0..CALLS {
            for number in 0..operations {
                let _ = writeln!(
                    self.text,
                    "x += operation{number}(pm, {number}, {call}); if (write(1, \"\\n\", 1) != 1) return 1;"
                );
            }
        }
        self.text.push_str("return (int)(x & 63);\n}\n");
        self.text
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % bound
    }

    fn body(&mut self) {
        self.text.push_str("word c = 1, d = a; word local[4] = {0, a, b, 2};\n");
        self.statements = 0;
        for _ in 0..4 + self.below(5) {
            self.statement();
        }
        let result = self.expression(2);
        let _ = writeln!(self.text, "return {result};\n}}");
    }

    fn variable(&mut self) -> &'static str {
        ["a", "b", "c", "d"][self.below(4) as usize]
    }

    /// Something that holds a word.
    fn place(&mut self, depth: u64) -> String {
        let index = self.expression(depth.saturating_sub(1));
        match self.below(6) {
            0..3 if self.pointer == "pm" => format!("pm[({index}) & 31]"),
            0..3 => format!("p[({index}) & 3]"),
            3 => format!("ram[({index}) & 7]"),
            4 => format!("local[({index}) & 3]"),
            _ => self.variable().to_owned(),
        }
    }

    fn expression(&mut self, depth: u64) -> String {
        if depth == 0 {
            return match self.below(3) {
                0 => self.below(9).to_string(),
                _ => self.variable().to_owned(),
            };
        }
        match self.below(9) {
            0..3 => self.place(depth),
            3..6 => {
                let operator = ["+", "-", "*", "&", "|", "^", "<", "=="][self.below(8) as usize];
                let (one, other) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("(word)(({one}) {operator} ({other}))")
            }
            6 => {
                let (one, two, three) = (
                    self.expression(depth - 1),
                    self.expression(depth - 1),
                    self.expression(depth - 1),
                );
                format!("(({one}) & 1 ? ({two}) : ({three}))")
            }
            7 => {
                let operator = ["&&", "||"][self.below(2) as usize];
                let (one, other) = (self.expression(depth - 1), self.expression(depth - 1));
                format!("(word)((({one}) & 1) {operator} (({other}) & 3))")
            }
            _ => self.expression(depth - 1),
        }
    }

    fn pointer_expression(&mut self) -> String {
        match self.below(4) {
            0 if self.pointer == "pm" => {
                let index = self.expression(1);
                format!("pm + (({index}) & 15)")
            }
            0 | 1 => self.pointer.to_owned(),
            2 => "ram".to_owned(),
            _ => "local".to_owned(),
        }
    }

    fn block(&mut self) {
        self.depth += 1;
        for _ in 0..1 + self.below(3) {
            self.statement();
        }
        self.depth -= 1;
    }

    fn statement(&mut self) {
        self.statements += 1;
        let simple = self.depth >= 3 || self.statements > 24;
        match self.below(if simple { 8 } else { 16 }) {
            0..5 => {
                let (place, value) = (self.place(2), self.expression(2));
                let _ = writeln!(self.text, "{place} = {value};");
            }
            5 => {
                let (to, from) = (self.pointer_expression(), self.pointer_expression());
                let bytes = 1 + self.below(24);
                // What may overlap must be moved.
                let copy = ["memmove", "memcpy"][usize::from((to == "local") != (from == "local"))];
                let _ = writeln!(self.text, "{copy}({to}, {from}, {bytes});");
            }
            6 => match self.below(3) {
                0 => {
                    let (place, value) = (self.place(1), self.expression(1));
                    let _ = writeln!(
                        self.text,
                        "d = __atomic_fetch_add(&({place}), {value}, __ATOMIC_SEQ_CST);"
                    );
                }
                1 => {
                    let (place, value) = (self.place(1), self.expression(1));
                    let _ = writeln!(
                        self.text,
                        "{{ word e = b & 7; d = __atomic_compare_exchange_n(&({place}), &e, {value}, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); b = e; }}"
                    );
                }
                _ => {
                    let (to, byte) = (self.pointer_expression(), self.expression(1));
                    let bytes = 1 + self.below(16);
                    let _ = writeln!(self.text, "memset({to}, (int)({byte}), {bytes});");
                }
            },
            7 if self.callable > 0 => {
                let function = self.below(self.callable.div_ceil(2) as u64) * 2;
                let (pointer, one, other) = (self.pointer_expression(), self.expression(1), self.expression(1));
                let variable = self.variable();
                let _ = writeln!(self.text, "{variable} = help{function}({pointer}, {one}, {other});");
            }
            7 => {
                let (one, other) = (self.pointer_expression(), self.pointer_expression());
                let _ = writeln!(self.text, "c = memcmp({one}, {other}, 12) != 0;");
            }
            8..11 => {
                let condition = self.expression(2);
                let _ = writeln!(self.text, "if (({condition}) & 3) {{");
                self.block();
                if self.below(2) == 0 {
                    self.text.push_str("} else {\n");
                    self.block();
                }
                self.text.push_str("}\n");
            }
            11..13 => {
                let (number, condition) = (self.loops, self.expression(2));
                self.loops += 1;
                let _ = writeln!(
                    self.text,
                    "for (word i{number} = 0; i{number} < 3 && (({condition}) & 7); i{number}++) {{"
                );
                self.block();
                if self.below(2) == 0 {
                    let (stop, how) = (self.expression(1), ["break", "continue"][self.below(2) as usize]);
                    let _ = writeln!(self.text, "if (({stop}) & 1) {how};");
                    self.block();
                }
                self.text.push_str("}\n");
            }
            13 => {
                let value = self.expression(2);
                let _ = writeln!(self.text, "switch (({value}) & 3) {{\ncase 0:");
                self.block();
                self.text.push_str("break;\ncase 1:\n");
                self.block();
                self.text.push_str("default:\n");
                self.block();
                self.text.push_str("}\n");
            }
            14 => {
                let (condition, result) = (self.expression(1), self.expression(1));
                let _ = writeln!(self.text, "if (({condition}) & 4) return {result};");
            }
            _ => {
                let (place, value, condition) = (self.place(1), self.expression(1), self.expression(1));
                let _ = writeln!(self.text, "{place} = ({condition}) & 1 ? 3 : {value};");
            }
        }
    }
}
