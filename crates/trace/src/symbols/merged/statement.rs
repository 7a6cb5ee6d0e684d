//! What a line of C, C++ or Rust assigns to, as far as its text says it. No parser: where the text is not plain (a macro, a
//! cast, a call on the left) there is no answer, and the caller then claims nothing.

/// How a part of a value is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `.name` or `->name`.
    Member(String),
    /// `[…]`; whether it is the same element each time.
    Element { fixed: bool },
    /// `*`.
    Target,
}

/// The left side of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    /// The variable that it begins with; none if it begins with a call or a cast.
    pub base: Option<String>,
    pub steps: Vec<Step>,
    /// The pointer moves on: `*p++`.
    pub moving: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Statement {
    /// Without what initialises a variable.
    pub assigned: Vec<Assigned>,
    /// Calls a function that fills memory, or writes a value with parts: `= {`.
    pub fills: bool,
    /// Calls any function.
    pub calls: bool,
}

impl Statement {
    pub fn parse(line: &str) -> Statement {
        let tokens = tokens(line);
        let mut statement = Statement::default();
        for (at, token) in tokens.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| tokens[before].as_str());
            if is_assignment(token) {
                statement.assigned.extend(left_side(&tokens[..at]));
            }
            let advances = || tokens.get(at + 1).is_some_and(|next| is_assignment(next));
            if matches!(token.as_str(), "++" | "--") && before.is_some_and(ends_operand) && !advances() {
                // `*p++` moves p.
                let counted = left_side(&tokens[..at]).map(|mut counted| {
                    counted.steps.retain(|step| *step != Step::Target);
                    counted
                });
                statement.assigned.extend(counted);
            }
            if token == "{" && before.is_some_and(|before| matches!(before, "=" | ")")) {
                statement.fills |= statement.assigned.last().is_some() || before == Some("=");
            }
            if token == "("
                && let Some(function) = before.filter(|before| is_word(before) && !is_keyword(before))
            {
                statement.calls = true;
                statement.fills |= fills_memory(function);
            }
        }
        statement
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "for" | "while" | "switch" | "return" | "sizeof" | "else" | "do"
    )
}

fn fills_memory(function: &str) -> bool {
    let name = function.trim_start_matches('_').trim_start_matches("builtin_");
    ["mem", "str", "stp", "wmem", "bzero", "bcopy", "copy", "fill"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

fn is_assignment(token: &str) -> bool {
    matches!(
        token,
        "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>="
    )
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn is_number(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_digit())
}

fn ends_operand(token: &str) -> bool {
    is_word(token) || matches!(token, "]" | ")")
}

/// The expression that the tokens end with, if it is one that can be assigned to.
fn left_side(tokens: &[String]) -> Option<Assigned> {
    let mut steps = Vec::new();
    let mut end = tokens.len();
    let mut moving = false;
    while end > 0 && matches!(tokens[end - 1].as_str(), "++" | "--") {
        moving = true;
        end -= 1;
    }
    let base = loop {
        let token = tokens.get(end.checked_sub(1)?)?;
        match token.as_str() {
            "]" => {
                let open = opening(&tokens[..end], "[", "]")?;
                let fixed = tokens[open + 1..end - 1].iter().all(|token| is_number(token));
                steps.push(Step::Element { fixed });
                end = open;
            }
            ")" => {
                let open = opening(&tokens[..end], "(", ")")?;
                // `*(p + 1)`.
                if let [base, "+" | "-", offset] =
                    &tokens[open + 1..end - 1].iter().map(String::as_str).collect::<Vec<_>>()[..]
                    && steps.is_empty()
                    && open > 0
                    && tokens[open - 1] == "*"
                {
                    end = open - 1;
                    steps.push(Step::Element {
                        fixed: is_number(offset),
                    });
                    break Some((*base).to_owned());
                }
                end = open;
                // A call has a name before it.
                end -= usize::from(end > 0 && is_word(&tokens[end - 1]));
                break None;
            }
            _ if is_word(token) => {
                end -= 1;
                match end.checked_sub(1).map(|before| tokens[before].as_str()) {
                    Some("->" | ".") => {
                        steps.push(Step::Member(token.clone()));
                        end -= 1;
                    }
                    _ => break Some(token.clone()),
                }
            }
            _ => return None,
        }
    };
    let mut targets = 0;
    while end > targets && tokens[end - 1 - targets] == "*" {
        targets += 1;
    }
    let before = end.checked_sub(targets + 1).map(|before| tokens[before].as_str());
    // `int *p = …`, `a * b`: not a unary `*`; `let x = …`, `long x = …`: a variable comes to be.
    if before.is_some_and(|before| ends_operand(before) && before != ")" && before != "else" && before != "do") {
        return None;
    }
    steps.reverse();
    steps.extend(std::iter::repeat_n(Step::Target, targets));
    Some(Assigned { base, steps, moving })
}

/// Where the bracket that the tokens end with was opened.
fn opening(tokens: &[String], open: &str, close: &str) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().rposition(|token| {
        depth += i32::from(token == close) - i32::from(token == open);
        depth == 0
    })
}

/// The words and operators of a line, without comments and literal strings.
fn tokens(line: &str) -> Vec<String> {
    const OPERATORS: [&str; 25] = [
        "<<=", ">>=", "->", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", "&&",
        "||", "::", "<<", ">>", "=>", "//", "/*",
    ];
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(rest) {
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(rest.len())
        } else if first == '"' || (first == '\'' && rest[1..].chars().nth(1) == Some('\'')) {
            rest[1..].find(first).map_or(rest.len(), |end| end + 2)
        } else {
            let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
            operator.map_or(first.len_utf8(), |operator| operator.len())
        };
        let (token, after) = rest.split_at(length);
        rest = match token {
            "//" => "",
            "/*" => after.split_once("*/").map_or("", |(_, after)| after),
            _ => {
                tokens.push(token.to_owned());
                after
            }
        }
        .trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str) -> Vec<String> {
        let name = |assigned: &Assigned| {
            let mut text = assigned.base.clone().unwrap_or_else(|| "?".into());
            for step in &assigned.steps {
                match step {
                    Step::Member(name) => text += &format!(".{name}"),
                    Step::Element { fixed } => text += if *fixed { "[n]" } else { "[i]" },
                    Step::Target => text += "*",
                }
            }
            text + if assigned.moving { "++" } else { "" }
        };
        Statement::parse(line).assigned.iter().map(name).collect()
    }

    #[test]
    fn left_sides() {
        for (line, expected) in [
            ("p->a = 1;", &["p.a"][..]),
            (
                "  pool->log.entry[n + 1].key[3] |= b == 2; // x = 3",
                &["pool.log.entry[i].key[n]"],
            ),
            ("p->c = p->d = 0;", &["p.c", "p.d"]),
            ("if (x) p->n++; else *q = '=';", &["p.n", "q*"]),
            ("if (x == 1) *q = 2;", &["q*"]),
            ("*to++ = *from++;", &["to*++", "from"]),
            ("*(to + 1) = *(from + i) = 2;", &["to[n]", "from[i]"]),
            ("long *p = q, k = 3;", &["k"]),
            ("const char *text = \"a = b\"; /* c = d */ e = f;", &["e"]),
            ("D_RW(node)->items[0].key = k;", &["?.items[n].key"]),
            ("((struct pair *)p)->a = 1", &["?.a"]),
            ("let x = 1;", &[]),
            ("return a <= b && c >= d;", &[]),
        ] {
            assert_eq!(written(line), expected, "{line}");
        }
    }

    #[test]
    fn fills() {
        for line in [
            "memset(p, 0, 8);",
            "*p = (struct pair){ .a = 1 };",
            "p->x = __builtin_memcpy(a, b, c)",
        ] {
            assert!(Statement::parse(line).fills, "{line}");
        }
        for line in ["p->a = f(1);", "if (x) {", "p->strength = 1;"] {
            assert!(!Statement::parse(line).fills, "{line}");
        }
        assert!(Statement::parse("p->a = f(1);").calls && !Statement::parse("if (x) p->a = (int)y;").calls);
    }
}
