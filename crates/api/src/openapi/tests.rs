//! Fields that the document requires are in every answer.

use super::*;

/// Fields that `stated` requires and that answers may leave out.
fn optional(stated: &Value, written: &Value, path: &str, found: &mut Vec<String>) {
    match (stated, written) {
        (Value::Object(stated), Value::Object(written)) => {
            if let (Some(Value::Array(required)), true) =
                (stated.get("required"), stated.contains_key("properties"))
            {
                let always = written.get("required").and_then(Value::as_array);
                let is_optional = |field: &&Value| !always.is_some_and(|always| always.contains(field));
                found.extend(required.iter().filter(is_optional).map(|field| format!("{path}: {field}")));
            }
            for (name, stated) in stated {
                let written = written.get(name).unwrap_or(&Value::Null);
                optional(stated, written, &format!("{path}/{name}"), found);
            }
        }
        (Value::Array(stated), Value::Array(written)) => {
            for (at, (stated, written)) in stated.iter().zip(written).enumerate() {
                optional(stated, written, &format!("{path}/{at}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn no_field_is_required_that_answers_may_leave_out() {
    let by_answers = generator().settings().clone().for_serialize();
    let written = document_of(SchemaGenerator::new(by_answers));
    let mut found = Vec::new();
    optional(&document(), &written, "", &mut found);
    assert_eq!(found, [""; 0]);
}
