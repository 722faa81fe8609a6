//! `graph`: who may call whom, drawn.

use serde_json::{Value, json};

use crate::{program::Program, server::Server};

const PATH: &str = "/meshes/default/_graph";

fn node(id: &str, access: &str) -> Value {
    let name = id.rsplit("__").next().unwrap().trim_end_matches('_');
    json!({"id": id, "name": name, "kind": "MeshService", "dataplanes": 1, "access": access})
}

fn small() -> Value {
    let mut shop = node("kri_msvc_default___shop_", "anyone-except");
    shop["except"] = json!(["a", "b", "c", "d", "e"]);
    json!({
        "nodes": [
            node("kri_msvc_default___kv_", "listed"),
            node("kri_msvc_default___web_", "listed"),
            {"id": "spiffe://default/batch", "name": "batch", "kind": "client", "dataplanes": 2, "access": "none"},
            node("kri_msvc_default___docs_", "anyone"),
            shop,
        ],
        "edges": [
            {"from": "kri_msvc_default___web_", "to": "kri_msvc_default___kv_"},
            {"from": "spiffe://default/batch", "to": "kri_msvc_default___kv_"},
            {"from": "kri_msvc_default___kv_", "to": "kri_msvc_default___kv_"},
            {"from": "unknown", "to": "kri_msvc_default___kv_"},
        ],
        "open": 3,
        "truncated": false,
    })
}

#[test]
fn a_graph_is_drawn_in_every_form() {
    let server = Server::start();
    server.on("GET", PATH, 200, small());
    let program = Program::of(&server);
    let drawn = |form: &str| program.run(&["graph", "-o", form]).ok().out;
    assert_eq!(
        drawn("dot"),
        r#"digraph mesh {
  rankdir=LR;
  node [shape=box];
  n0 [label="kv", tooltip="kri_msvc_default___kv_"];
  n1 [label="web", tooltip="kri_msvc_default___web_"];
  n2 [label="batch", tooltip="spiffe://default/batch", shape=ellipse];
  subgraph cluster_anyone {
    label="anyone may call";
    style=dashed;
    n3 [label="docs", tooltip="kri_msvc_default___docs_"];
    n4 [label="shop\nanyone except a, b, c and 2 more", tooltip="kri_msvc_default___shop_"];
  }
  n0 -> n0;
  n1 -> n0;
  n2 -> n0;
  label="1 more services may be called by anyone";
}
"#
    );
    assert_eq!(
        drawn("mermaid"),
        r#"graph LR
  n0["kv"]
  n1["web"]
  n2(["batch"])
  subgraph anyone["anyone may call"]
    n3["docs"]
    n4["shop<br/>anyone except a, b, c and 2 more"]
  end
  n0 --> n0
  n1 --> n0
  n2 --> n0
  note["1 more services may be called by anyone"]
"#
    );
    let json: Value = serde_json::from_str(&drawn("json")).unwrap();
    assert_eq!(json, small(), "as the REST API says it");
    let svg = drawn("svg");
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>\n"));
    assert_eq!((svg.matches("<g>").count(), svg.matches("marker-end").count()), (5, 3), "{svg}");
    // Clients stand left of what they call.
    let x_of = |title: &str| {
        let at = svg.split(&format!("<title>{title}</title>")).nth(1).unwrap();
        let x = at.split("x=\"").nth(1).unwrap().split('"').next().unwrap();
        x.parse::<u32>().unwrap()
    };
    let (kv, web) = (x_of("kri_msvc_default___kv_"), x_of("kri_msvc_default___web_"));
    assert!(web < kv && x_of("spiffe://default/batch") == web, "{svg}");
    assert_eq!(program.run(&["graph"]).ok().out, drawn("dot"));
}

#[test]
fn a_part_is_asked_for_and_what_was_cut_is_said() {
    let server = Server::start();
    let mut cut = small();
    cut["truncated"] = json!(true);
    server.on("GET", "/meshes/my%20shop/_graph?service=a%26b", 200, cut);
    let ran = Program::of(&server).run(&["graph", "-m", "my shop", "--service", "a&b", "-o", "mermaid"]).ok();
    assert!(ran.out.contains("there is more than is drawn"), "{}", ran.out);
    assert!(ran.err.contains("draw a part with --service"), "{}", ran.err);
    server.on(
        "GET",
        PATH,
        404,
        json!({"status": 404, "title": "Failed to retrieve Mesh", "detail": "Not found"}),
    );
    Program::of(&server).run(&["graph"]).failed(1).says("could not draw mesh default");
}

#[test]
fn names_are_text_in_every_form() {
    let hostile = "\"];evil->n1[label=\"<script>alert('x')</script>&#35;`**_\\N\u{7}\n]]>";
    let graph = json!({
        "nodes": [{"id": hostile, "name": hostile, "kind": "client", "dataplanes": 1, "access": "none"}],
        "edges": [], "open": 0, "truncated": false,
    });
    let server = Server::start();
    server.on("GET", PATH, 200, graph);
    let program = Program::of(&server);
    let drawn = |form: &str| program.run(&["graph", "-o", form]).ok().out;
    let dot = drawn("dot");
    let text = r#"\"];evil->n1[label=\"<script>alert('x')</script>&#35;`**_\\N  ]]>"#;
    assert!(dot.contains(&format!("n0 [label=\"{text}\", tooltip=\"{text}\", shape=ellipse];\n")), "{dot}");
    assert_eq!(dot.lines().count(), 5, "{dot}");
    let mermaid = drawn("mermaid");
    assert_eq!(
        mermaid,
        "graph LR\n  n0([\"#34;];evil-#62;n1[label=#34;#60;script#62;alert('x')#60;/script#62;#38;#35;35;#96;#42;#42;#95;#92;N  \
         ]]#62;\"])\n"
    );
    let svg = drawn("svg");
    assert!(!svg.contains("<script") && !svg.contains('\u{7}'), "{svg}");
    let text = "&quot;];evil-&gt;n1[label=&quot;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;#35;`**_\\N  ]]&gt;";
    assert!(svg.contains(&format!("<title>{text}</title>")), "{svg}");
}
