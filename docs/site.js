// Draws Mermaid's pictures; where its library cannot be loaded, their text stays.
if (document.querySelector("pre.mermaid")) {
  const { default: mermaid } = await import("https://cdn.jsdelivr.net/npm/mermaid@11/dist/mermaid.esm.min.mjs");
  mermaid.initialize({ startOnLoad: false });
  await mermaid.run();
}
