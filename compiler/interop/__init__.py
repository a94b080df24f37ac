"""Plans from other tools' schedules, and back: MSCCL in and out."""
