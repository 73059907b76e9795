//! JSON: the model as it is. Its schema is described in `docs/json.md`.

use crate::verdict::DifferenceTable;

/// The table as pretty-printed JSON with a final newline.
#[must_use]
pub fn render(table: &DifferenceTable) -> String {
    let mut text = serde_json::to_string_pretty(table)
        .unwrap_or_else(|error| unreachable!("the table has string keys and finite numbers only: {error}"));
    text.push('\n');
    text
}
