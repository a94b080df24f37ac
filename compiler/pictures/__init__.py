"""Pictures: topology, DAG, pipeline, timeline, trace, and the page that has them all."""
