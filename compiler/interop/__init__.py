"""Import of other tools' schedules as Plans, and export: MSCCL XML."""
