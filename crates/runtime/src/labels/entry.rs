//! Where the code enters, as in [`crate::hooks`].

use super::events;
use crate::hooks::entry;
use crashproof_wire::labels::Labels;

entry!(combine, events::combine, "js");
entry!(control, events::control, "js");
entry!(load, events::load, "js");
entry!(store, events::store, "js");
entry!(copy, events::copy, "js");
entry!(written, events::written, "js");
entry!(compared, events::compared, "js");
entry!(text, events::text_length, "js");
entry!(source, events::source, "js");
entry!(fresh, events::fresh, "js");
entry!(enter, events::enter_function, "js");
entry!(argument, events::argument, "js");
entry!(leave, events::leave, "js");
entry!(call, events::call, "js");
entry!(pass, events::pass, "js");
entry!(result, events::result, "js");
entry!(branch, events::branch, "js");
entry!(join, events::join, "js");
entry!(depth, events::depth, "js");
entry!(restore, events::restore, "js");
entry!(blocks, events::blocks, "js");

/// What the slots of modules built with `--deps` point to.
pub(crate) static LABELS: Labels = Labels {
    combine,
    control,
    load,
    store,
    copy,
    written,
    compared,
    text,
    source,
    fresh,
    enter,
    argument,
    leave,
    call,
    pass,
    result,
    branch,
    join,
    depth,
    restore,
    blocks,
};
