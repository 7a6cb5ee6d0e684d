//! The text form.

use rustc_hash::FxHashMap;

use crate::{Action, AddressRange, Flush, Litmus, Op, Property, Store, StoreId, StoreKind};

/// Longest store: a gigabyte of one line each would only be a slip.
const LONGEST: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// A word and the column at which it begins, from 1.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    line: usize,
    column: usize,
}

impl Word<'_> {
    fn error(self, message: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }

    fn number(self, what: &str) -> Result<u64, ParseError> {
        let (digits, radix) = match self.text.strip_prefix("0x").or_else(|| self.text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (self.text, 10),
        };
        u64::from_str_radix(digits, radix)
            .map_err(|_| self.error(format!("`{}` is no {what}: give a number, as 64 or 0x40", self.text)))
    }
}

/// A reference to a store by name, resolved when all names are known.
enum Pending<'a> {
    Flush { op: usize, name: Word<'a> },
    Durable(Word<'a>),
    Before(Word<'a>, Word<'a>),
}

impl Litmus {
    pub fn parse(text: &str) -> Result<Litmus, ParseError> {
        let mut parser = Parser::default();
        parser.litmus.threads.push(String::new());
        for (index, line) in text.lines().enumerate() {
            parser.line(line, index + 1)?;
        }
        parser.finish()
    }
}

#[derive(Default)]
struct Parser<'a> {
    litmus: Litmus,
    names: FxHashMap<&'a str, StoreId>,
    pending: Vec<Pending<'a>>,
}

impl<'a> Parser<'a> {
    fn line(&mut self, line: &'a str, number: usize) -> Result<(), ParseError> {
        let code = line.split('#').next().unwrap_or_default();
        let mut words = words(code, number);
        let Some(mut first) = words.next() else {
            return Ok(());
        };
        let mut thread = 0;
        if let Some(name) = first.text.strip_suffix(':') {
            thread = self.thread(name, first)?;
            first = words
                .next()
                .ok_or_else(|| first.error("a thread alone: an operation has to follow it"))?;
        }
        let end = Word {
            text: "",
            line: number,
            column: code.trim_end().chars().count() + 1,
        };
        let mut next = |what: &str| words.next().ok_or_else(|| end.error(format!("{what} is missing")));
        match first.text {
            "store" => self.store(StoreKind::Plain, thread, next("the store's name")?, &mut next)?,
            "ntstore" => self.store(StoreKind::Nontemporal, thread, next("the store's name")?, &mut next)?,
            "rmw" => self.store(StoreKind::Locked, thread, next("the store's name")?, &mut next)?,
            "flush" => self.flush(false, thread, next("what to flush, a store's name or an address,")?)?,
            "clflush" => self.flush(true, thread, next("what to flush, a store's name or an address,")?)?,
            "fence" => self.push(thread, Action::Fence { full: false }),
            "mfence" => self.push(thread, Action::Fence { full: true }),
            "require" if thread != 0 => return Err(first.error("a property has no thread")),
            "require" => {
                let subject = next("what is required")?;
                if subject.text == "durable" {
                    self.pending.push(Pending::Durable(next("the store's name")?));
                } else {
                    let before = next("`before`")?;
                    if before.text != "before" {
                        return Err(before.error(format!(
                            "`{}` instead of `before`: a property is `require durable NAME` or `require NAME before NAME`",
                            before.text
                        )));
                    }
                    self.pending
                        .push(Pending::Before(subject, next("the second store's name")?));
                }
            }
            other => {
                return Err(first.error(format!(
                    "`{other}` is no operation: there are store, ntstore, rmw, flush, clflush, fence, mfence and require"
                )));
            }
        }
        let times = words.next();
        if let Some(times) = times {
            self.times(first, times)?;
        }
        match words.next() {
            Some(extra) => Err(extra.error(format!("`{}` is too much", extra.text))),
            None => Ok(()),
        }
    }

    /// `x1000` after an operation: how often its line of source ran.
    fn times(&mut self, first: Word, word: Word) -> Result<(), ParseError> {
        let Some(digits) = word.text.strip_prefix('x').filter(|_| first.text != "require") else {
            return Err(word.error(format!("`{}` is too much", word.text)));
        };
        let wrong = || {
            word.error(format!(
                "`{}` is no number of times: give x and a number from 1, as x1000",
                word.text
            ))
        };
        let times = digits.parse().ok().filter(|&times| times > 0).ok_or_else(wrong)?;
        // The operation is the last.
        self.litmus.times.resize(self.litmus.ops.len(), 1);
        if let Some(last) = self.litmus.times.last_mut() {
            *last = times;
        }
        Ok(())
    }

    fn thread(&mut self, name: &str, word: Word) -> Result<u32, ParseError> {
        let digits = name.strip_prefix('T').unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(word.error(format!("`{name}:` is no thread: give T and a number, as T1:")));
        }
        let known = self.litmus.threads.iter().position(|thread| thread == name);
        let index = known.unwrap_or_else(|| {
            self.litmus.threads.push(name.to_owned());
            self.litmus.threads.len() - 1
        });
        Ok(index as u32)
    }

    fn store(
        &mut self,
        kind: StoreKind,
        thread: u32,
        name: Word<'a>,
        next: &mut impl FnMut(&str) -> Result<Word<'a>, ParseError>,
    ) -> Result<(), ParseError> {
        if !is_name(name.text) {
            return Err(name.error(format!(
                "`{}` is no name: a name begins with a letter or _, and goes on with letters, digits and _.[]->",
                name.text
            )));
        }
        let (address, length) = (next("the address")?, next("the length")?);
        let (start, len) = (address.number("address")?, length.number("length")?);
        if len == 0 {
            return Err(length.error("a store of no bytes"));
        }
        if len > LONGEST {
            return Err(length.error(format!("a store of more than {LONGEST} bytes: give several")));
        }
        if start.checked_add(len).is_none() {
            return Err(address.error("the store reaches beyond the last address"));
        }
        let id = self.litmus.stores.len();
        if self.names.insert(name.text, id).is_some() {
            return Err(name.error(format!("a second store `{}`: names are unique", name.text)));
        }
        self.litmus.stores.push(Store {
            name: name.text.to_owned(),
            at: AddressRange { start, len },
            kind,
        });
        self.push(thread, Action::Store(id));
        Ok(())
    }

    fn flush(&mut self, at_once: bool, thread: u32, target: Word<'a>) -> Result<(), ParseError> {
        let mut flush = Flush {
            names: None,
            at: AddressRange { start: 0, len: 1 },
            at_once,
        };
        if target.text.starts_with(|first: char| first.is_ascii_digit()) {
            flush.at.start = target.number("address")?;
            if flush.at.start == u64::MAX {
                return Err(target.error("beyond the last address"));
            }
        } else {
            let op = self.litmus.ops.len();
            self.pending.push(Pending::Flush { op, name: target });
        }
        self.push(thread, Action::Flush(flush));
        Ok(())
    }

    fn push(&mut self, thread: u32, action: Action) {
        self.litmus.ops.push(Op { thread, action });
    }

    fn finish(mut self) -> Result<Litmus, ParseError> {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Flush { op, name } => {
                    let id = self.resolve(name)?;
                    let at = self.litmus.stores[id].at;
                    if let Action::Flush(flush) = &mut self.litmus.ops[op].action {
                        flush.names = Some(id);
                        flush.at = at;
                    }
                }
                Pending::Durable(name) => {
                    let id = self.resolve(name)?;
                    self.litmus.properties.push(Property::Durable(id));
                }
                Pending::Before(first, second) => {
                    let (before, after) = (self.resolve(first)?, self.resolve(second)?);
                    if before == after {
                        return Err(second.error(format!("`{}` cannot persist before itself", second.text)));
                    }
                    self.litmus.properties.push(Property::Before(before, after));
                }
            }
        }
        if !self.litmus.times.is_empty() {
            self.litmus.times.resize(self.litmus.ops.len(), 1);
        }
        Ok(self.litmus)
    }

    fn resolve(&self, name: Word) -> Result<StoreId, ParseError> {
        let unknown = || name.error(format!("no store is named `{}`", name.text));
        self.names.get(name.text).copied().ok_or_else(unknown)
    }
}

/// Not an address, and not a keyword of a property.
fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    first.is_some_and(|c| c.is_alphabetic() || c == '_')
        && characters.all(|c| c.is_alphanumeric() || "_.[]->:".contains(c))
        && text != "durable"
        && text != "before"
        && !text.ends_with(':')
}

fn words(code: &str, line: usize) -> impl Iterator<Item = Word<'_>> {
    let mut column = 1;
    let mut rest = code;
    std::iter::from_fn(move || {
        let blank = rest.len() - rest.trim_start().len();
        column += rest[..blank].chars().count();
        rest = &rest[blank..];
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if end == 0 {
            return None;
        }
        let word = Word {
            text: &rest[..end],
            line,
            column,
        };
        column += rest[..end].chars().count();
        rest = &rest[end..];
        Some(word)
    })
}
