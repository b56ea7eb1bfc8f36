#include "plan/clock/cost.h"

#include <math.h>

enum { MOST_DEVICES = 1 << 20 }; /* of a cluster */
static const double HOUR = 3600;

static double lost_share(const cost_wish *w) {
    double rate = w->preemptions_per_hour / HOUR, every = w->checkpoint_every_s;
    if (rate <= 0) return every > 0 ? w->checkpoint_s / every : 0;
    return rate * (every / 2 + w->restart_s) + (every > 0 ? w->checkpoint_s / every : 0);
}

/* The main run on spot devices beside the same on devices that stay; what is beside it is done on the latter. */
static void reckon_spot(const cost_wish *w, cost_sum *out) {
    double every = w->checkpoint_every_s, kept = 1 - (every > 0 ? w->checkpoint_s / every : 0);
    double beside = out->overhead_hours * w->dollars_per_hour;
    out->dollars = out->device_hours * w->spot_per_hour + beside;
    out->staying_dollars = out->ideal_s / kept / HOUR * w->devices * w->dollars_per_hour + beside;
    double cheaper = 1 - w->spot_per_hour / w->dollars_per_hour;
    if (cheaper > 0 && every / 2 + w->restart_s > 0)
        out->even_per_hour = kept * cheaper / (every / 2 + w->restart_s) * HOUR;
}

static status check_ends(const cost_wish *w, double lost, err *e) {
    double every = w->checkpoint_every_s / 60, write = w->checkpoint_s / 60;
    if (write > 0 && write >= every) {
        err_at(e, ST_USAGE, "--checkpoint",
               "a checkpoint takes %.4g minutes, and is written each %.4g: nothing is trained",
               write, every);
        return err_hint(e, "save less often: --checkpoint-every %.4g", 10 * write);
    }
    if (lost < 1) return ST_OK;
    err_set(e, ST_FAILED,
            "it never ends: between preemptions less is done than each of them loses");
    return err_hint(e, "save more often (--checkpoint-every), or start faster (--restart)");
}

status cost_reckon(const cost_wish *w, cost_sum *out, err *e) {
    *out = (cost_sum){.flops = 6 * w->params * w->tokens,
                      .tokens_per_param = w->params > 0 ? w->tokens / w->params : 0};
    double rate = w->peak_flops * w->mfu;
    if (w->known_s > 0)
        out->ideal_s = w->known_s;
    else if (rate > 0) /* of one device, by how much more of them are faster */
        out->ideal_s = out->flops / rate * (w->serial + (1 - w->serial) / w->devices);
    else
        return err_at(e, ST_USAGE, "mfu", "without hours or an MFU nothing says how long it takes");
    out->mfu = w->known_s > 0 ? out->flops / (w->known_s * w->devices * w->peak_flops) : w->mfu;
    double lost = lost_share(w);
    TRY(check_ends(w, lost, e));
    out->run_s = out->ideal_s / (1 - lost);
    out->device_hours = out->run_s / HOUR * w->devices;
    out->overhead_hours = w->ablation_hours + w->evaluation_hours + w->debug_hours;
    out->all_hours = out->device_hours + out->overhead_hours;
    out->kwh = out->all_hours * w->watts * w->pue / 1e3;
    out->dollars = out->all_hours * w->dollars_per_hour;
    if (w->spot_per_hour > 0) reckon_spot(w, out);
    double shared = w->serial > 0 && rate > 0 && w->known_s <= 0
                        ? out->flops / rate / (1 - lost) /* as if all were shared */
                        : out->run_s * w->devices;
    if (w->deadline_s > 0 && out->ideal_s > 0) {
        double needed = ceil(shared / w->deadline_s - 1e-9);
        if (needed > MOST_DEVICES)
            return err_at(e, ST_USAGE, "--days",
                          "for %.4g days it takes %.3g devices, and there are no more than %d",
                          w->deadline_s / (24 * HOUR), needed, MOST_DEVICES);
        out->devices_needed = (int)needed;
    }
    if (w->preemptions_per_hour > 0)
        out->best_checkpoint_s = sqrt(2 * w->checkpoint_s * HOUR / w->preemptions_per_hour);
    if (w->serial > 0) {
        out->speed_up = 1 / (w->serial + (1 - w->serial) / w->devices);
        out->speed_limit = 1 / w->serial;
    }
    return ST_OK;
}
