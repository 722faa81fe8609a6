//! Reading what can be read of a document, for lists: one field that is not what it should be hides nothing else.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::{Lenient, Reason};

/// After so many faults, whole fields of the document are left out: looking for each fault reads the document again.
const MOST_FAULTS: usize = 32;

/// Reads a document as a type, without the fields that have another type than they should, and without the items of lists
/// that cannot be read at all.
pub fn read_partly<T: DeserializeOwned + Default>(document: &Value) -> T {
    let mut error = match read::<T>(document) {
        Ok(found) => return found,
        Err(error) => error,
    };
    let mut rest = document.clone();
    for faults in 0.. {
        let depth = if faults < MOST_FAULTS { usize::MAX } else { 1 };
        if !remove(&mut rest, error.path(), depth) {
            break;
        }
        match read(&rest) {
            Ok(found) => return found,
            Err(next) => error = next,
        }
    }
    T::default()
}

fn read<T: DeserializeOwned>(document: &Value) -> Result<T, serde_path_to_error::Error<Reason>> {
    serde_path_to_error::deserialize(Lenient(document))
}

/// Removes what is at the path, or the part around it at this depth. Returns false if there is nothing to remove.
fn remove(document: &mut Value, path: &Path, depth: usize) -> bool {
    let steps: Vec<&Segment> = path.iter().take(depth).collect();
    let Some((last, before)) = steps.split_last() else { return false };
    let mut around = document;
    for step in before {
        let within = match step {
            Segment::Map { key } => around.get_mut(key),
            Segment::Seq { index } => around.get_mut(index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        let Some(within) = within else { return false };
        around = within;
    }
    match (last, around) {
        (Segment::Map { key }, Value::Object(fields)) => fields.remove(key).is_some(),
        (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use resources::kinds::{dataplane::Dataplane, dataplane_insight::DataplaneInsight};
    use serde_json::json;

    use super::*;
    use crate::layout::ProxyLayout;

    #[test]
    fn a_field_of_another_type_is_taken_for_absent() {
        let dataplane: Dataplane = read_partly(&json!({
            "networking": {
                "address": ["10.0.0.1"],
                "inbound": [{ "port": 80, "state": "Draining" }, 7, null, { "port": {}, "tags": { "a": 1, "b": "c" } }],
                "gateway": null,
            },
            "probes": "none",
        }));
        let networking = dataplane.networking.unwrap();
        assert_eq!(networking.address, "");
        let ports: Vec<u32> = networking.inbound.iter().map(|inbound| inbound.port).collect();
        assert_eq!(ports, [80, 0]);
        assert_eq!(networking.inbound[1].tags, [("b".to_owned(), "c".to_owned())].into());
    }

    #[test]
    fn a_time_that_is_none_hides_no_connection() {
        let insight: DataplaneInsight = read_partly(&json!({ "subscriptions": [
            { "id": "1", "connectTime": "2024-05-01T10:00:00Z", "disconnectTime": "now" },
            { "id": "2", "status": { "total": { "responsesSent": "many", "responsesRejected": "2" } } },
        ] }));
        assert!(insight.subscriptions[0].is_online());
        let status = insight.subscriptions[1].status.as_ref().unwrap();
        assert_eq!((status.total.responses_sent, status.total.responses_rejected), (0, 2));
    }

    #[test]
    fn what_is_no_object_at_all_is_empty() {
        for document in [json!([1]), json!("a"), json!(null), json!(7)] {
            assert_eq!(read_partly::<ProxyLayout>(&document), ProxyLayout::default(), "{document}");
        }
    }

    #[test]
    fn ever_more_faults_end_with_the_field_they_are_in() {
        let wrong: Vec<Value> = (0..100_000).map(|_| json!("x")).collect();
        let layout: ProxyLayout = read_partly(&json!({ "kri": "a", "inbounds": wrong }));
        assert_eq!((layout.kri.as_str(), layout.inbounds.len()), ("a", 0));
    }
}
