//! Conversations as text: a script holds what goes in, and the stream must say the rest.
//!
//! ```text
//!   target C/a@1 E/a@1       what the proxy should have: type/name@version
//!   > C +a -b have=a@1 #1    a delta request: subscribe, unsubscribe, initial versions, nonce
//!   > C [a b] v #1           a state-of-the-world request: names, the last version seen, nonce
//!   … error=text             a NACK, always last on the line
//!   reconnect, retry         a fresh stream with the same target; another try
//!   < C 1 a@1 -b             a response: nonce, resources, removed names
//!   ! acked C 1              any other action
//! ```

use std::{collections::HashMap, fmt::Write, sync::Arc};

use xds::{
    Action, Encoded, Target, Type, delta,
    message::{DeltaRequest, DeltaResponse, Node, Request, Response, RpcStatus},
    sotw,
};

const LETTERS: [(char, Type); 5] = [
    ('C', Type::Cluster),
    ('E', Type::Endpoint),
    ('S', Type::Secret),
    ('L', Type::Listener),
    ('R', Type::Route),
];

fn kind(letter: &str) -> Type {
    LETTERS.into_iter().find(|(known, _)| letter == known.to_string()).expect("a type").1
}

fn letter(kind: Type) -> char {
    LETTERS.into_iter().find(|(_, known)| kind == *known).expect("a letter").0
}

pub fn encoded(kind: Type, name: &str, version: u128) -> Arc<Encoded> {
    Arc::new(Encoded::new(kind, name, version, format!("{name}@{version}").as_bytes()))
}

pub fn target(text: &str) -> Arc<Target> {
    let mut target = Target::default();
    for resource in text.split_whitespace() {
        let (letter, rest) = resource.split_once('/').expect("type/name@version");
        let (name, version) = rest.split_once('@').expect("name@version");
        let kind = kind(letter);
        target.insert(kind, encoded(kind, name, version.parse().expect("a version")));
    }
    Arc::new(target)
}

fn hex(version: &str) -> String {
    version.parse().map_or_else(|_| version.to_owned(), |number: u128| format!("{number:032x}"))
}

/// A request as a script has it.
#[derive(Default)]
struct Words {
    kind: String,
    node: Option<Node>,
    nonce: String,
    error: Option<RpcStatus>,
    rest: Vec<String>,
}

fn words(line: &str, first: bool) -> Words {
    let (line, error) = match line.split_once(" error=") {
        Some((line, error)) => (line, Some(RpcStatus { code: 13, message: error.to_owned() })),
        None => (line, None),
    };
    let node = |id: &str| Node { id: id.to_owned(), ..Node::default() };
    let mut words = Words { error, node: first.then(|| node("default.web")), ..Words::default() };
    for word in line.split_whitespace() {
        if let Some(nonce) = word.strip_prefix('#') {
            words.nonce = nonce.to_owned();
        } else if let Some(id) = word.strip_prefix("node=") {
            words.node = Some(node(id));
        } else if words.kind.is_empty() {
            words.kind = word.to_owned();
        } else {
            words.rest.push(word.to_owned());
        }
    }
    words
}

fn url(letter: &str) -> String {
    if letter.len() == 1 { kind(letter).url().to_owned() } else { letter.to_owned() }
}

fn delta_request(line: &str, first: bool) -> DeltaRequest {
    let words = words(line, first);
    let mut request = DeltaRequest {
        node: words.node,
        type_url: url(&words.kind),
        response_nonce: words.nonce,
        error_detail: words.error,
        ..DeltaRequest::default()
    };
    for word in &words.rest {
        if let Some(name) = word.strip_prefix('+') {
            request.resource_names_subscribe.push(name.to_owned());
        } else if let Some(name) = word.strip_prefix('-') {
            request.resource_names_unsubscribe.push(name.to_owned());
        } else {
            let (name, version) =
                word.strip_prefix("have=").and_then(|have| have.split_once('@')).expect("a word");
            request.initial_resource_versions.insert(name.to_owned(), hex(version));
        }
    }
    request
}

fn render<R>(actions: Vec<Action<R>>, response: impl Fn(&R) -> String) -> String {
    let mut text = String::new();
    for action in actions {
        match action {
            Action::Send(sent) => writeln!(text, "< {}", response(&sent)),
            Action::Acked { kind, nonce, .. } => writeln!(text, "! acked {} {nonce}", letter(kind)),
            Action::Rejected { kind, nonce, names, message } => {
                writeln!(text, "! rejected {} {nonce} [{}] {message}", letter(kind), names.join(" "))
            }
            Action::Ignored { reason } => writeln!(text, "! ignored: {reason}"),
            Action::Close(error) => writeln!(text, "! close: {error}"),
        }
        .unwrap();
    }
    text
}

fn delta_response(response: &DeltaResponse) -> String {
    let mut text = format!("{} {}", letter(Type::by_url(&response.type_url).unwrap()), response.nonce);
    for resource in &response.decoded().unwrap() {
        let any = resource.resource.as_ref().unwrap();
        assert_eq!(any.type_url, response.type_url);
        let version = u128::from_str_radix(&resource.version, 16).unwrap();
        let body = String::from_utf8(any.value.to_vec()).unwrap();
        assert!(body.starts_with(&format!("{}@{version}", resource.name)), "{body}");
        write!(text, " {}@{version}", resource.name).unwrap();
    }
    for name in &response.removed_resources {
        write!(text, " -{name}").unwrap();
    }
    text
}

fn sotw_response(response: &Response) -> String {
    let mut text = format!("{} {}", letter(Type::by_url(&response.type_url).unwrap()), response.nonce);
    for resource in &response.decoded().unwrap() {
        write!(text, " {}", String::from_utf8(resource.value.to_vec()).unwrap()).unwrap();
    }
    text
}

/// Plays a script and compares it with what really happened.
fn play(script: &str, mut step: impl FnMut(&str) -> Option<String>) {
    let expected: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut happened = String::new();
    for line in &expected {
        if let Some(actions) = step(line) {
            write!(happened, "{line}\n{actions}").unwrap();
        }
    }
    assert_eq!(happened.lines().collect::<Vec<_>>().join("\n"), expected.join("\n"));
}

#[track_caller]
pub fn delta(script: &str) {
    let mut stream = delta::Stream::new();
    let mut current = None;
    let mut first = true;
    play(script, |line| {
        let actions = if let Some(text) = line.strip_prefix("target") {
            current = Some(target(text));
            stream.set_target(current.clone().unwrap())
        } else if let Some(request) = line.strip_prefix("> ") {
            stream.on_request(delta_request(request, std::mem::take(&mut first)))
        } else if line == "retry" {
            stream.retry()
        } else if line == "reconnect" {
            (stream, first) = (delta::Stream::new(), true);
            current.clone().map(|target| stream.set_target(target)).unwrap_or_default()
        } else {
            return None;
        };
        Some(render(actions, delta_response))
    });
}

#[track_caller]
pub fn sotw(script: &str) {
    let mut stream = sotw::Stream::new();
    let mut current = None;
    let mut first = true;
    let mut versions: HashMap<String, String> = HashMap::new();
    play(script, |line| {
        let actions = if let Some(text) = line.strip_prefix("target") {
            current = Some(target(text));
            stream.set_target(current.clone().unwrap())
        } else if let Some(request) = line.strip_prefix("> ") {
            let request = sotw_request(request, std::mem::take(&mut first), &versions);
            stream.on_request(request)
        } else if line == "retry" {
            stream.retry()
        } else if line == "reconnect" {
            (stream, first) = (sotw::Stream::new(), true);
            current.clone().map(|target| stream.set_target(target)).unwrap_or_default()
        } else {
            return None;
        };
        for action in &actions {
            if let Action::Send(response) = action {
                versions.insert(response.type_url.clone(), response.version_info.clone());
            }
        }
        Some(render(actions, sotw_response))
    });
}

fn sotw_request(line: &str, first: bool, versions: &HashMap<String, String>) -> Request {
    let words = words(&line.replace(['[', ']'], " "), first);
    let type_url = url(&words.kind);
    let (version, names): (Vec<String>, Vec<String>) = words.rest.into_iter().partition(|word| word == "v");
    Request {
        version_info: version.first().and_then(|_| versions.get(&type_url)).cloned().unwrap_or_default(),
        node: words.node,
        resource_names: names,
        type_url,
        response_nonce: words.nonce,
        error_detail: words.error,
    }
}
