"""Words of the reports of studies, sweeps and judgements."""
