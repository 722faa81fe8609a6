//! Looks into encoded messages without decoding them.

/// A field's value, as far as the wire tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of 4 or 8 bytes; nothing that is looked for has such.
    Fixed,
}

/// The top-level fields of a message, until it ends or makes no sense.
pub fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let key = number(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Number(number(&mut bytes)?),
            1 => skip(&mut bytes, 8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(number(&mut bytes)?).ok()?;
                Value::Bytes(skip(&mut bytes, length)?)
            }
            5 => skip(&mut bytes, 4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((key >> 3, value))
    })
}

fn skip<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The wire form of a number.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// `Cluster`, `ClusterLoadAssignment`, `Listener`, `Secret` and `RouteConfiguration` all begin with a name.
pub fn name(body: &[u8]) -> Option<&[u8]> {
    fields(body).find_map(|(field, value)| match value {
        Value::Bytes(name) if field == 1 => Some(name),
        _ => None,
    })
}

/// The name under which a `Cluster` asks for its endpoints, if it does.
pub fn endpoints_of(cluster: &[u8]) -> Option<&[u8]> {
    const EDS: u64 = 3;
    let mut own = None;
    let mut discovers = false;
    let mut other = None;
    for (field, value) in fields(cluster) {
        match (field, value) {
            (1, Value::Bytes(name)) => own = Some(name),
            (2, Value::Number(kind)) => discovers = kind == EDS,
            (3, Value::Bytes(config)) => other = service_name(config),
            _ => {}
        }
    }
    if discovers { other.or(own) } else { None }
}

/// Of an `EdsClusterConfig`.
fn service_name(config: &[u8]) -> Option<&[u8]> {
    fields(config).find_map(|(field, value)| match value {
        Value::Bytes(name) if field == 2 && !name.is_empty() => Some(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_stands_between() {
        let message = [0x0a, 1, b'a', 0x15, 0, 0, 0, 0, 0x10, 0xac, 0x02];
        let found: Vec<_> = fields(&message).collect();
        assert_eq!(found, [(1, Value::Bytes(b"a")), (2, Value::Fixed), (2, Value::Number(300))]);
        assert_eq!(fields(&[0x0a, 9, 1]).count(), 0, "cut off");
    }

    #[test]
    fn a_cluster_that_discovers_its_endpoints_says_under_which_name() {
        let cluster = [0x0a, 1, b'a', 0x10, 3];
        assert_eq!(endpoints_of(&cluster), Some(&b"a"[..]));
        let renamed = [0x0a, 1, b'a', 0x10, 3, 0x1a, 3, 0x12, 1, b'b'];
        assert_eq!(endpoints_of(&renamed), Some(&b"b"[..]));
        assert_eq!(endpoints_of(&[0x0a, 1, b'a', 0x10, 0]), None);
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 1, 127, 128, 300, 1_234_567, u64::MAX] {
            assert_eq!(number(&mut varint(value).as_slice()), Some(value));
        }
    }
}
