//! The book in `docs/`: `SUMMARY.md` lists every page, every link leads somewhere, and every command line that is shown has options
//! that exist. (What the commands print is not compared: it is copied from real runs by hand.)

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The pages of the book, and what else people read.
fn texts() -> Vec<PathBuf> {
    let root = root();
    let mut texts: Vec<_> = pages(&root.join("docs")).into_iter().collect();
    texts.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root.join(name)));
    texts
}

/// The Markdown files of a folder and those below it, without the table of contents.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|end| end == "md") && !path.ends_with("SUMMARY.md") {
            pages.insert(path);
        }
    }
    pages
}

fn events(text: &str) -> impl Iterator<Item = Event<'_>> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Where links and pictures lead.
fn links(text: &str) -> Vec<String> {
    let link = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    events(text).filter_map(link).collect()
}

/// The anchors of a page's headings, as mdBook and code forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut counts) = (BTreeSet::new(), BTreeMap::new());
    let mut heading: Option<String> = None;
    for event in events(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = counts.entry(slug.clone()).and_modify(|n| *n += 1).or_insert(0);
                anchors.insert(match *count {
                    0 => slug,
                    n => format!("{slug}-{n}"),
                });
            }
            _ => {}
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let character = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim().chars().filter_map(character).collect()
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed = BTreeSet::new();
    for link in links(&summary) {
        assert!(listed.insert(docs.join(&link)), "SUMMARY.md lists {link} twice");
    }
    let missing: Vec<_> = pages(&docs).difference(&listed).cloned().collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let docs = root().join("docs");
    let mut wrong = Vec::new();
    let mut known: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for page in texts().into_iter().chain([docs.join("SUMMARY.md")]) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(a, b)| (a, Some(b)));
            let target = match path {
                "" => page.clone(),
                path => plain(&page.parent().unwrap().join(path)),
            };
            // The book is only what is in docs/.
            let outside = page.starts_with(&docs) && !target.starts_with(&docs);
            let found = anchor.is_none_or(|anchor| {
                let anchors = known
                    .entry(target.clone())
                    .or_insert_with(|| anchors(&std::fs::read_to_string(&target).unwrap_or_default()));
                anchors.contains(anchor)
            });
            if outside || !found || !target.exists() {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "links that lead nowhere, or out of docs/:\n{}",
        wrong.join("\n")
    );
}

/// Every file below a folder of the project, from the root.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Source files and folders are named with as much of their path as says which is meant.
#[test]
fn the_source_files_that_the_map_names_exist() {
    let root = root();
    let mut known = Vec::new();
    for folder in ["crates", "bench", "soak/src", "tools", "corpus"] {
        files(&root.join(folder), &mut known);
    }
    let known: Vec<String> = known
        .iter()
        .map(|path| format!("/{}", path.strip_prefix(&root).unwrap().display()))
        .collect();
    let mut wrong = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for event in events(&text) {
            let Event::Code(name) = event else { continue };
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            if !name.ends_with(".rs") || !name.chars().all(is_path) || name.contains("NAME") {
                continue;
            }
            if !known.iter().any(|file| file.ends_with(&format!("/{name}"))) {
                wrong.push(format!("{page}: `{name}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "no such files:\n{}", wrong.join("\n"));
}

/// What `crashproof COMMAND --help` says.
fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_crashproof"))
        .args(command)
        .arg("--help")
        .output()
        .expect("crashproof runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Of each command, its options; those of commands of a command (`ops generate`) are counted in.
fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let options = |help: &str| -> BTreeSet<String> {
        let words = help.split(|c: char| c.is_whitespace() || ",[]<>=`()".contains(c));
        words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
    };
    let mut commands = BTreeMap::new();
    for name in subcommands(&help(&[])) {
        let help_text = help(&[&name]);
        let mut all = options(&help_text);
        for below in subcommands(&help_text) {
            all.extend(options(&help(&[&name, &below])));
        }
        commands.insert(name, all);
    }
    commands
}

fn subcommands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    list.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The lines of code blocks, without shell continuations, and inline code.
fn code(text: &str) -> Vec<String> {
    let mut code = Vec::new();
    let mut block: Option<String> = None;
    for event in events(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let shell = match kind {
                    CodeBlockKind::Fenced(language) => matches!(&*language, "" | "sh" | "console" | "yaml"),
                    CodeBlockKind::Indented => true,
                };
                block = shell.then(String::new);
            }
            Event::Text(text) => {
                if let Some(block) = &mut block {
                    block.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                let block = block.take().unwrap_or_default().replace("\\\n", " ");
                code.extend(block.lines().map(str::to_owned));
            }
            Event::Code(text) => code.push(text.replace('\n', " ")),
            _ => {}
        }
    }
    code
}

/// The words after `crashproof` in a line of shell, up to the program's own.
fn words(line: &str) -> Option<Vec<String>> {
    let words = shell_words::split(line).unwrap_or_else(|_| line.split_whitespace().map(str::to_owned).collect());
    let is_it = |word: &str| word == "crashproof" || word.ends_with("/crashproof");
    let first = words.iter().position(|word| is_it(word))?;
    let of_it = |word: &&String| !matches!(word.as_str(), "--" | "&&" | "||" | "|" | ";" | ">" | "<");
    Some(words[first + 1..].iter().take_while(of_it).cloned().collect())
}

#[test]
fn every_option_that_is_shown_exists() {
    let commands = commands();
    assert!(
        commands.contains_key("check") && commands["check"].contains("--json"),
        "{commands:?}"
    );
    let mut wrong = Vec::new();
    for page in texts() {
        // What was is in the change log, too.
        if page.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        for line in code(&text) {
            let Some(words) = words(&line) else { continue };
            let Some(command) = words.first().map(|word| word.trim_start_matches('[')) else {
                continue;
            };
            // `crashproof COMMAND`, `crashproof: 1 error`, `crashproof --version`
            if !command.chars().all(|c| c.is_ascii_lowercase() || c == '+') || command == "help" {
                continue;
            }
            let Some(options) = commands.get(command) else {
                wrong.push(format!("{}: no command {command:?}: {line}", page.display()));
                continue;
            };
            for word in &words[1..] {
                let word = word.trim_start_matches('[');
                let name = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
                let option = word.split(name).next().unwrap_or_default();
                // `cc` takes all of clang's.
                let takes_all = matches!(command, "cc" | "c++");
                if option.len() > 2 && option.starts_with("--") && !options.contains(option) && !takes_all {
                    wrong.push(format!("{}: {command} has no {option}: {line}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The page of a command has a table of its options.
#[test]
fn the_option_tables_of_commands_are_true() {
    let mut wrong = Vec::new();
    for (command, options) in commands() {
        let page = root().join(format!("docs/{command}.md"));
        let Ok(text) = std::fs::read_to_string(&page) else {
            continue;
        };
        let (mut column, mut in_table) = (0, false);
        for event in events(&text) {
            match event {
                Event::Start(Tag::Table(_)) => in_table = true,
                Event::End(TagEnd::Table) => in_table = false,
                Event::Start(Tag::TableRow | Tag::TableHead) => column = 0,
                Event::End(TagEnd::TableCell) => column += 1,
                Event::Code(code) if in_table && column == 0 && code.starts_with("--") => {
                    let option = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).next();
                    if !option.is_some_and(|option| options.contains(option)) {
                        wrong.push(format!("{}: {command} has no {code}", page.display()));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
