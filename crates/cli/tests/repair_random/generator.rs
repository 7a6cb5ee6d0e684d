//! Random small C programs that keep data in PM and are right: every store to PM is flushed and fenced, nothing is flushed or fenced
//! for nothing.
//!
//! What makes them right by construction: an `item` is one cache line, a `page` three. Every helper for items stores to its item, and every
//! helper for pages to each line of its page, whatever its other arguments are, so that a flush after a call of it is never void. Helpers
//! flush nothing: they are used for volatile and persistent data. Procedures know that they work on PM, flush after each store and
//! call, and fence what they flushed in a branch or a loop before they leave it. At the start all of the PM is written and persisted,
//! so that nothing in it looks like volatile data.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub(crate) enum Statement {
    Plain(String),
    /// Of this lvalue.
    Flush(String),
    Fence,
    If(String, Vec<Statement>, Vec<Statement>),
    For {
        variable: String,
        count: u64,
        body: Vec<Statement>,
    },
}

use Statement::{Fence, Flush, For, If, Plain};

pub(crate) struct Function {
    pub signature: String,
    pub body: Vec<Statement>,
}

/// Persists with one call where flush and fence follow each other, or never.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idiom {
    FlushAndFence,
    Persist,
}

pub(crate) struct Program {
    pub functions: Vec<Function>,
    /// What main does.
    pub runs: Vec<Statement>,
    pub idiom: Idiom,
    /// Blocks of one statement have braces.
    pub braces: bool,
}

const ITEMS: u64 = 6;
const PAGES: u64 = 3;

impl Program {
    pub(crate) fn random(random: &mut Random) -> Program {
        let mut writer = Writer {
            random,
            item_helpers: 0,
            page_helpers: 0,
            depth: 0,
        };
        let mut functions = Vec::new();
        for _ in 0..1 + writer.random.below(2) {
            let word = writer.random.below(50);
            functions.push(Function {
                signature: format!("static void word_{}(uint64_t *word, uint64_t n)", functions.len()),
                body: vec![Plain(format!("*word = n * {word} + 1;"))],
            });
        }
        let words = functions.len() as u64;
        for _ in 0..2 + writer.random.below(3) {
            functions.push(writer.item_helper(words));
            writer.item_helpers += 1;
        }
        for _ in 0..1 + writer.random.below(2) {
            functions.push(writer.page_helper(words));
            writer.page_helpers += 1;
        }
        let procedures = 2 + writer.random.below(3);
        for number in 0..procedures {
            functions.push(Function {
                signature: format!("static void procedure_{number}(struct root *root, uint64_t n)"),
                body: writer.procedure(words),
            });
        }
        let mut runs = Vec::new();
        for _ in 0..2 + writer.random.below(4) {
            let (procedure, n) = (writer.random.below(procedures), writer.random.below(40));
            runs.push(Plain(format!("procedure_{procedure}(root, {n});")));
            if writer.random.one_in(2) {
                runs.push(writer.volatile_call());
            }
        }
        Program {
            functions,
            runs,
            idiom: if random.one_in(2) {
                Idiom::Persist
            } else {
                Idiom::FlushAndFence
            },
            braces: random.one_in(2),
        }
    }
}

struct Writer<'r> {
    random: &'r mut Random,
    item_helpers: u64,
    page_helpers: u64,
    /// Of loops, for their variables.
    depth: usize,
}

impl Writer<'_> {
    /// Never zero: adding it has to remain a store when it is optimised.
    fn number(&mut self, variables: &[&str]) -> String {
        let constant = 1 + self.random.below(100);
        let variable = variables[self.random.below(variables.len() as u64) as usize];
        match self.random.below(3) {
            0 => constant.to_string(),
            1 => format!("n + {constant}"),
            _ => format!("{variable} * {constant} + 1"),
        }
    }

    fn field(&mut self) -> String {
        match self.random.below(6) {
            0 => "key".to_owned(),
            1 => "count".to_owned(),
            2 => "flags".to_owned(),
            3 => format!("values[{}]", self.random.below(4)),
            4 => "at.x".to_owned(),
            _ => "at.y".to_owned(),
        }
    }

    /// A store to an item that `access` leads to ("item->", "root->items[2]."): where, and the statement.
    fn store_at(&mut self, access: &str, variables: &[&str]) -> (String, String) {
        let (field, value) = (self.field(), self.number(variables));
        let operator = ["=", "+="][self.random.below(2) as usize];
        let place = format!("{access}{field}");
        let statement = format!("{place} {operator} {value};");
        (place, statement)
    }

    fn store(&mut self) -> Statement {
        Plain(self.store_at("item->", &["n"]).1)
    }

    fn item_helper(&mut self, words: u64) -> Function {
        let mut body = vec![self.store()];
        for _ in 0..1 + self.random.below(3) {
            let statement = match self.random.below(8) {
                0 | 1 => self.store(),
                2 => {
                    let value = self.number(&["n", "i"]);
                    For {
                        variable: "i".to_owned(),
                        count: 4,
                        body: vec![Plain(format!("item->values[i] = {value};"))],
                    }
                }
                3 => {
                    let otherwise = match self.random.one_in(2) {
                        true => vec![self.store()],
                        false => Vec::new(),
                    };
                    let then = vec![self.store()];
                    If(format!("n % {} == 1", 2 + self.random.below(3)), then, otherwise)
                }
                4 => {
                    let letter = (b'a' + self.random.below(26) as u8) as char;
                    Plain(format!("memcpy(item->tag, \"{}\", 8);", letter.to_string().repeat(7)))
                }
                5 => Plain(format!(
                    "memset(item->values, {}, sizeof item->values);",
                    self.random.below(256)
                )),
                6 => {
                    let (word, value) = (self.random.below(words), self.number(&["n"]));
                    Plain(format!(
                        "word_{word}(&item->values[{}], {value});",
                        self.random.below(4)
                    ))
                }
                _ if self.item_helpers > 0 => {
                    let (helper, value) = (self.random.below(self.item_helpers), self.number(&["n"]));
                    Plain(format!("item_{helper}(item, {value});"))
                }
                _ => Plain("item->count++;".to_owned()),
            };
            body.push(statement);
        }
        Function {
            signature: format!("static void item_{}(struct item *item, uint64_t n)", self.item_helpers),
            body,
        }
    }

    fn page_helper(&mut self, words: u64) -> Function {
        let first = match self.random.below(3) {
            0 => Plain("*page = *from;".to_owned()),
            1 => Plain("memcpy(page, from, sizeof *page);".to_owned()),
            _ => For {
                variable: "i".to_owned(),
                count: 24,
                body: vec![Plain(format!(
                    "page->words[i] = from->words[i] + {};",
                    self.number(&["n", "i"])
                ))],
            },
        };
        let mut body = vec![first];
        match self.random.below(3) {
            0 => body.push(Plain(format!("page->words[n % 24] = {};", self.number(&["n"])))),
            1 => {
                let (word, value) = (self.random.below(words), self.number(&["n"]));
                body.push(Plain(format!(
                    "word_{word}(&page->words[{}], {value});",
                    self.random.below(24)
                )));
            }
            _ => {}
        }
        Function {
            signature: format!(
                "static void page_{}(struct page *page, const struct page *from, uint64_t n)",
                self.page_helpers
            ),
            body,
        }
    }

    fn index(&mut self, variables: &[&str], count: u64) -> String {
        match self.random.below(3) {
            0 => self.random.below(count).to_string(),
            1 => format!("n % {count}"),
            _ => {
                let variable = variables[self.random.below(variables.len() as u64) as usize];
                format!("({variable} + {}) % {count}", self.random.below(count))
            }
        }
    }

    fn volatile_call(&mut self) -> Statement {
        let n = self.random.below(30);
        if self.random.one_in(3) {
            let (helper, to, from) = (
                self.random.below(self.page_helpers),
                self.random.below(PAGES),
                self.random.below(PAGES),
            );
            // A page is never copied onto itself: memcpy.
            let from = if from == to { (from + 1) % PAGES } else { from };
            Plain(format!("page_{helper}(&buffers[{to}], &buffers[{from}], {n});"))
        } else {
            let (helper, at) = (self.random.below(self.item_helpers), self.random.below(ITEMS));
            Plain(format!("item_{helper}(&cache[{at}], {n});"))
        }
    }

    fn procedure(&mut self, words: u64) -> Vec<Statement> {
        let steps = 2 + self.random.below(3);
        self.steps(steps, words, &["n"])
    }

    /// Leaves nothing unfenced.
    fn steps(&mut self, count: u64, words: u64, variables: &[&str]) -> Vec<Statement> {
        let mut statements = Vec::new();
        let mut pending = false;
        for _ in 0..count {
            match self.random.below(9) {
                0 | 1 => {
                    let at = format!("root->items[{}]", self.index(variables, ITEMS));
                    let (place, store) = self.store_at(&format!("{at}."), variables);
                    statements.push(Plain(store));
                    statements.push(flush(&place));
                    pending = true;
                }
                2 | 3 => {
                    let at = format!("root->items[{}]", self.index(variables, ITEMS));
                    let (helper, value) = (self.random.below(self.item_helpers), self.number(variables));
                    statements.push(Plain(format!("item_{helper}(&{at}, {value});")));
                    statements.push(flush(&at));
                    pending = true;
                }
                4 => {
                    let at = format!("root->pages[{}]", self.index(variables, PAGES));
                    let (helper, from) = (self.random.below(self.page_helpers), self.random.below(PAGES));
                    let value = self.number(variables);
                    statements.push(Plain(format!("page_{helper}(&{at}, &buffers[{from}], {value});")));
                    statements.push(flush(&at));
                    pending = true;
                }
                5 => {
                    let at = format!(
                        "root->pages[{}].words[{}]",
                        self.index(variables, PAGES),
                        self.random.below(24)
                    );
                    let (word, value) = (self.random.below(words), self.number(variables));
                    statements.push(Plain(format!("word_{word}(&{at}, {value});")));
                    statements.push(flush(&at));
                    pending = true;
                }
                6 => statements.push(self.volatile_call()),
                7 if self.depth < 2 => {
                    let variable = ["i", "j"][self.depth];
                    self.depth += 1;
                    let inner = [variables, &[variable]].concat();
                    let steps = 1 + self.random.below(2);
                    let body = self.steps(steps, words, &inner);
                    self.depth -= 1;
                    fence(&mut statements, &mut pending);
                    statements.push(For {
                        variable: variable.to_owned(),
                        count: 2 + self.random.below(3),
                        body,
                    });
                }
                _ if self.depth < 2 => {
                    self.depth += 1;
                    let steps = 1 + self.random.below(2);
                    let then = self.steps(steps, words, variables);
                    let otherwise = if self.random.one_in(2) {
                        self.steps(1, words, variables)
                    } else {
                        Vec::new()
                    };
                    self.depth -= 1;
                    fence(&mut statements, &mut pending);
                    let condition = format!("n % {} == {}", 2 + self.random.below(3), self.random.below(2));
                    statements.push(If(condition, then, otherwise));
                }
                _ => statements.push(self.volatile_call()),
            }
            if self.random.one_in(2) {
                fence(&mut statements, &mut pending);
            }
        }
        fence(&mut statements, &mut pending);
        statements
    }
}

fn flush(place: &str) -> Statement {
    Flush(place.to_owned())
}

fn fence(statements: &mut Vec<Statement>, pending: &mut bool) {
    if std::mem::take(pending) {
        statements.push(Fence);
    }
}
