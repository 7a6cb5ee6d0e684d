//! Prints what each store of a trace writes: `typed TRACE`. With `--summary`, how many stores have a type.

use std::collections::HashMap;
use std::error::Error;

use crashproof_sites::{ModuleSites, Store, Typing};
use crashproof_stacks::Stacks;
use crashproof_trace::{EventKind, Item, ModuleId, TraceReader};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which trace?")?;
    let summary = arguments.next().is_some_and(|argument| argument == "--summary");
    let mut reader = TraceReader::open(path)?;
    let mut stores = Vec::new();
    while let Some(item) = reader.next()? {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
        {
            stores.push(Store {
                thread: event.thread,
                stack: event.stack,
                at,
                len: data.len(),
            });
        }
    }
    let tables = reader.tables();
    let mut typing = Typing::new();
    let types = typing.all(tables, &stores);
    for warning in typing.warnings() {
        eprintln!("warning: {warning}");
    }
    let typed = (0..stores.len()).filter(|&index| !types.of(index).is_empty()).count();
    println!("{typed} of {} stores have a type", stores.len());
    let mut built: HashMap<ModuleId, bool> = HashMap::new();
    let mut is_built = |store: &Store| {
        let Some(id) = tables.frames(store.stack).first().and_then(|frame| frame.module) else {
            return false;
        };
        let path = tables.module(id).map_or("", |module| module.path.as_str());
        *built
            .entry(id)
            .or_insert_with(|| matches!(ModuleSites::read(path.as_ref()), Ok(Some(_))))
    };
    let own: Vec<usize> = (0..stores.len()).filter(|&index| is_built(&stores[index])).collect();
    let typed = own.iter().filter(|&&index| !types.of(index).is_empty()).count();
    println!("{typed} of the {} by code that crashproof cc built", own.len());
    if summary {
        return Ok(());
    }
    let mut stacks = Stacks::default();
    for (index, store) in stores.iter().enumerate() {
        let symbolized = stacks.symbolize(store.stack, tables);
        let place = symbolized.frames.iter().find(|frame| frame.line.is_some());
        let place = place.map_or("?".into(), |frame| {
            let file = frame.file.as_deref().unwrap_or("");
            format!(
                "{}:{}",
                file.rsplit('/').next().unwrap_or(file),
                frame.line.unwrap_or(0)
            )
        });
        let types: Vec<String> = types
            .of(index)
            .iter()
            .map(|typed| {
                let (ty, field) = (typing.type_name(typed.ty), typing.field_name(typed.field));
                format!("{ty}@{:#x}.{field}", typed.instance.offset)
            })
            .collect();
        println!("{place} {:#x}+{}: {}", store.at.offset, store.len, types.join(" in "));
    }
    Ok(())
}
