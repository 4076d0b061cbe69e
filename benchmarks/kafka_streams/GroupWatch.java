import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

/**
 * Watches the members of a group. Arguments: brokers, group, protocol ("classic" or "streams"); then settings of the
 * group as name=value. Whenever the number of members has changed, it prints a line of JSON: so it says when the broker has
 * noticed that one is lost. It ends with its standard input.
 */
public class GroupWatch {
    static final long LOOK_MS = 50;

    static void configure(Admin admin, String group, List<String> settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String setting : settings) {
            String[] parts = setting.split("=", 2);
            changes.add(new AlterConfigOp(new ConfigEntry(parts[0], parts[1]), AlterConfigOp.OpType.SET));
        }
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all().get();
    }

    static int members(Admin admin, String group, boolean streams) throws Exception {
        try {
            if (streams) {
                StreamsGroupDescription found = admin.describeStreamsGroups(List.of(group)).all().get().get(group);
                return found.members().size();
            }
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            return found.members().size();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof GroupIdNotFoundException) {
                return 0;
            }
            throw error;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Instance.endWithInput();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            if (arguments.length > 3) {
                configure(admin, arguments[1], List.of(arguments).subList(3, arguments.length));
            }
            int before = -1;
            while (true) {
                int now = members(admin, arguments[1], arguments[2].equals("streams"));
                if (now != before) {
                    System.out.println("{\"at\": " + System.currentTimeMillis() / 1e3 + ", \"members\": " + now + "}");
                    before = now;
                }
                Thread.sleep(LOOK_MS);
            }
        }
    }
}
